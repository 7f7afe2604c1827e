"""The runtime's flags on the command line of a script that has flags of its own.

split(["--lr", "0.1", "--min-workers=2"], {"--min-workers": True}, {"--lr"})    # (["--min-workers=2"], ["--lr", "0.1"])
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

DECIDED = {
    "--epochs": "the epochs are those of the script's own loop",
    "--batch-size": "the batch size is that of the DataLoader, times gradient_accumulation_steps",
    "--batch-policy": "a batch of the DataLoader is always divided among the workers",
    "--amp": "give mixed_precision to Accelerator",
    "--evaluate-every": "the script evaluates by itself",
}
"""Flags of the runtime that the script decides."""


def split(
    argv: Sequence[str], runtime: Mapping[str, bool], script: Collection[str] = ()
) -> tuple[list[str], list[str]]:
    """Return the runtime's flags with their values, and the rest. A flag that both know is in both.

    Args:
        argv: The command line without the program's name.
        runtime: The runtime's flags; whether a value follows.
        script: The script's flags.
    """
    ours: list[str] = []
    rest: list[str] = []
    position = 0
    while position < len(argv):
        name, joined, _ = argv[position].partition("=")
        size = 2 if runtime.get(name) and not joined else 1
        if name in runtime:
            ours += argv[position : position + size]
        if name not in runtime or name in script:
            rest += argv[position : position + size]
        position += size
    return ours, rest


def refused(ours: Sequence[str], script: Collection[str] = ()) -> list[str]:
    """Return a sentence for each of the runtime's flags that the script decides, unless it is the script's own."""
    given = [each.partition("=")[0] for each in ours]
    return [f"{name}: {DECIDED[name]}; leave the flag out" for name in given if name in DECIDED and name not in script]
