"""`python3 -m scripts.virtual_machine COMMAND...`: run a command on a kernel where cgroup v2 alone is mounted."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from scripts.toolchain import steps
from scripts.toolchain.commands import Console
from scripts.toolchain.errors import SetupError
from scripts.virtual_machine import kernel, qemu


def main(arguments: Sequence[str]) -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(prog="python3 -m scripts.virtual_machine", description=__doc__)
    parser.add_argument("command", nargs=argparse.REMAINDER, help="the command, and its arguments")
    parsed = parser.parse_args(arguments)
    if not parsed.command:
        parser.error("name a command to run in the virtual machine, for example `make machine`")
    try:
        qemu.check()
        steps.install([kernel.step()], Console())
        return qemu.run(parsed.command, kernel.folder())
    except SetupError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
