"""`python3 -m scripts.toolchain COMMAND`: sets this machine up; see `--help`."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Sequence

from scripts import toolchain
from scripts.toolchain import debian, go_tools, machine, python_packages, shell, steps
from scripts.toolchain.commands import Console, duration
from scripts.toolchain.errors import SetupError
from scripts.toolchain.image import build
from scripts.toolchain.table import BENCH_TOOLS, MONITORING_TOOLS, PREVIOUS_TOOLS, TOOLS

UMASK = 0o022
"""Pods that aren't root read what is installed, whatever umask the shell has."""
_PYTHONS = {"stack": toolchain.stack_python, "torchx": toolchain.torchx_python}


def all_steps(*, monitoring: bool = False, torchx: bool = False) -> list[steps.Step]:
    """Everything that `make up` needs; with Prometheus and TorchX's environment, what `make test` needs."""
    return [
        debian.step(),
        *python_packages.steps(),
        *([python_packages.torchx_step()] if torchx else ()),
        *go_tools.steps(TOOLS),
        go_tools.charts_step(),
        *(go_tools.steps(MONITORING_TOOLS) if monitoring else ()),
        build.step(),
    ]


def main(arguments: Sequence[str]) -> int:
    """Runs one command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python3 -m scripts.toolchain", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("install", help="make what `make up` needs and isn't there yet: many minutes the first time")
    commands.add_parser("check", help="check that this machine has what `install` and the one-machine cloud need")
    commands.add_parser("bench", help="make the environment of the elastic benchmark, after `install`")
    commands.add_parser("bench-controller", help="build what the controller's benchmark compares with, after `install`")
    commands.add_parser("previous", help="build the version of Kubernetes before, from which upgrades are rehearsed")
    commands.add_parser(
        "monitoring", help="do what `install` does, build Prometheus too and put it into the nodes' image"
    )
    commands.add_parser("torchx", help="make TorchX's environment, after `install`")
    commands.add_parser("install-tests", help="do what `install`, `monitoring` and `torchx` do: what `make test` needs")
    python = commands.add_parser("python", help="print the path of a Python environment's interpreter")
    python.add_argument("environment", nargs="?", choices=_PYTHONS, default="stack", help="which one (default: stack)")
    commands.add_parser("shell", help="print the shell commands that `activate` evaluates")
    commands.add_parser("timings", help="print how long each part took when it was made")
    parsed = parser.parse_args(arguments)
    try:
        _run(parsed)
    except SetupError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; run it again to go on where it stopped", file=sys.stderr)
        return 130
    return 0


def _run(parsed: argparse.Namespace) -> None:
    command: str = parsed.command
    made: dict[str, Callable[[], list[steps.Step]]] = {
        "install": all_steps,
        "bench": lambda: [python_packages.bench_step()],
        "bench-controller": lambda: go_tools.steps(BENCH_TOOLS),
        "previous": lambda: go_tools.steps(PREVIOUS_TOOLS),
        "monitoring": lambda: all_steps(monitoring=True),
        "torchx": lambda: [python_packages.torchx_step()],
        "install-tests": lambda: all_steps(monitoring=True, torchx=True),
    }
    if command in made:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        os.umask(UMASK)
        os.environ["PATH"] = debian.path_of_root(os.environ.get("PATH", os.defpath))
        wanted = made[command]()
        if not all(step.done() for step in wanted):
            machine.check(wanted)
        steps.install(wanted, Console())
    elif command == "check":
        machine.check(all_steps())
    elif command == "python":
        print(_PYTHONS[parsed.environment]())
    elif command == "shell":
        print(shell.script_of_environment())
    else:
        for name, seconds in steps.timings().items():
            print(f"{name:30} {duration(seconds):>14}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
