"""The table of the flags in packages/elasticdl/docs/elasticdl.md.

python -m elasticdl.client.flags.reference      # prints it
"""

from __future__ import annotations

from elasticdl.client.flags import table
from elasticdl.client.flags.refused import REFUSED
from elasticdl.job import JobMode


def lines() -> list[str]:
    """Return the lines of the table: every flag by what it is about, then those that are refused."""
    found = ["| flag | default | |", "|---|---|---|"]
    for panel in table.PANELS:
        found.append(f"| **{panel}** | | |")
        found += [_row(flag) for flag in table.known().values() if flag.panel == panel]
    found.append("| **Refused**, with the reason | | |")
    reasons = dict.fromkeys(REFUSED.values())
    for reason in reasons:
        names = ", ".join(f"`{name}`" for name, own in REFUSED.items() if own == reason)
        found.append(f"| {names} | | {reason} |")
    return found


def _row(flag: table.Flag) -> str:
    default = f"`{flag.default}`" if flag.default else ""
    only = "" if flag.modes == frozenset(JobMode) else f" ({', '.join(sorted(flag.modes))})"
    text = flag.help.replace("|", "\\|")
    return f"| `{flag.name}` | {default} | {text}{only} |"


if __name__ == "__main__":
    print("\n".join(lines()))
