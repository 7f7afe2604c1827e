"""The Python environments: for the program, the cloud and the tests; for TorchX; for benchmarks; a folder for the pods.

Everything comes from the hash-locked files in `requirements/` and `trainer/`. The pods' folder is no virtual
environment: it is mounted into containers that have a Python of the same version, and the
stack's environment sees it too, so that the trainer's tests need no second torch. TorchX needs an older urllib3 than
the rest, so it has an environment of its own; that one sees the other two, and its own packages come first.
"""

from __future__ import annotations

import runpy
import shutil
import subprocess
import sys
from pathlib import Path

from scripts.toolchain import debian, paths
from scripts.toolchain.commands import Console, run
from scripts.toolchain.errors import StepFailed
from scripts.toolchain.steps import Step, draft_of, make_readable, readable

UV = "uv"
_TRAINER, _STACK = "trainer packages", "Python environment"
_GRPC_COMPILER = paths.CHECKOUT / "packages/elasticdl/src/elasticdl/rpc/generate.py"


def steps() -> list[Step]:
    """uv, then the pods' packages, then the environment that refers to them."""
    trainer = paths.trainer_folder
    return [
        Step(UV, done=lambda: _uv().is_file(), run=_install_uv, disk_gib=0.2, after=(debian.STEP,)),
        Step(_TRAINER, done=lambda: readable(trainer()), run=_install_trainer, disk_gib=6.5, after=(UV,)),
        Step(_STACK, done=stack_is_there, run=_install_stack, disk_gib=1.5, after=(UV, _TRAINER)),
        Step("gRPC code", done=grpc_code_is_there, run=lambda _console, _log: compile_grpc_code(), after=(_STACK,)),
    ]


def torchx_step() -> Step:
    """TorchX's environment, which refers to those of `steps`: for its command and for the tests of its scheduler."""
    return Step("TorchX environment", done=torchx_is_there, run=_install_torchx, disk_gib=0.5, after=(_STACK,))


def bench_step() -> Step:
    """The elastic benchmark's environment, which nothing else needs."""
    there = paths.bench_folder() / "bin" / "python"
    return Step("benchmark environment", done=there.exists, run=_install_bench, disk_gib=0.5)


def stack_is_there() -> bool:
    """Whether the environment is whole; false too when the Python that it was made from went away."""
    return (paths.stack_folder() / "bin" / "python").exists() and paths.trainer_folder().is_dir()


def torchx_is_there() -> bool:
    """Whether TorchX's environment is whole, with the one that it refers to."""
    return (paths.torchx_folder() / "bin" / "python").exists() and stack_is_there()


def grpc_code_is_there() -> bool:
    """Return whether the checkout has the code of elasticdl's gRPC definition, next to it and of its present text."""
    return not runpy.run_path(str(_GRPC_COMPILER))["problem"]()


def compile_grpc_code() -> None:
    """Compile elasticdl's gRPC definition unless that is done.

    Raises:
        StepFailed: the compiler refuses it.
    """
    if grpc_code_is_there():
        return
    command = [paths.stack_folder() / "bin" / "python", _GRPC_COMPILER]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise StepFailed(f"{_GRPC_COMPILER} failed:\n{done.stderr.strip()}")


def check_python(version: tuple[int, int], executable: str) -> None:
    """Refuses another Python than the pods'.

    Raises:
        StepFailed: the packages built for it couldn't be mounted into the pods.
    """
    system = debian.here()
    if version != system.python:
        wanted = system.python_name
        raise StepFailed(
            f"{executable} is Python {version[0]}.{version[1]} and this needs {wanted} on {system.name}: install "
            f"python{wanted} (apt-get install python{wanted}) or name one with `make PYTHON=/path/to/python{wanted}`"
        )


def _uv() -> Path:
    locked = (paths.REQUIREMENTS / "uv.txt").read_bytes()
    return paths.cache() / "python" / f"uv-{paths.key_of(locked)}" / "bin" / "uv"


def _install_uv(console: Console, log: Path) -> None:
    with draft_of(_uv().parents[1]) as draft:
        # A throw-away environment, as Debian's Python has no pip of its own.
        seed = draft.with_name(f"{draft.name}.seed")
        try:
            run([sys.executable, "-m", "venv", seed], log=log, console=console)
            pip: list[str | Path] = [seed / "bin" / "python", "-m", "pip", "install", "--disable-pip-version-check"]
            pip += ["--retries", "2", "--timeout", "10"]  # without a network it says so within seconds
            locked = ["--require-hashes", "-r", str(paths.REQUIREMENTS / "uv.txt")]
            run([*pip, "--target", draft, *locked], log=log, console=console)
        finally:
            shutil.rmtree(seed, ignore_errors=True)


def _install_trainer(console: Console, log: Path) -> None:
    with draft_of(paths.trainer_folder()) as draft:
        _pip_install(["--python", sys.executable, "--target", draft], ["trainer"], log, console)
        make_readable(draft)


def _install_stack(console: Console, log: Path) -> None:
    with draft_of(paths.stack_folder()) as draft:
        _make_environment(draft, ["stack", "dev"], [], console, log)
        # Without what they need: torch is in the trainer's folder.
        _pip_install(["--python", draft / "bin" / "python", "--no-deps"], ["libraries"], log, console)
        _show(draft, paths.trainer_folder())


def _install_torchx(console: Console, log: Path) -> None:
    # The tests of its scheduler run there, with the tools of the other tests.
    stack = _packages_of(paths.stack_folder() / "bin" / "python")
    with draft_of(paths.torchx_folder()) as draft:
        _make_environment(draft, ["torchx"], [], console, log)
        _show(draft, stack, paths.trainer_folder())


def _install_bench(console: Console, log: Path) -> None:
    with draft_of(paths.bench_folder()) as draft:
        # Its lock leaves out what the trainer's folder has: every system is measured with the same torch.
        _make_environment(draft, ["bench"], ["--no-deps"], console, log)
        _show(draft, paths.trainer_folder())


def _make_environment(folder: Path, locks: list[str], options: list[str], console: Console, log: Path) -> None:
    # Relocatable: its scripts find their Python next to themselves, wherever the draft is moved to.
    run([_uv(), "venv", "--relocatable", "--python", sys.executable, folder], log=log, console=console)
    _pip_install(["--python", folder / "bin" / "python", *options], locks, log, console)


def _show(environment: Path, *packages: Path) -> None:
    """Let an environment import from further folders, in their order and after its own packages."""
    lines = "".join(f"{folder}\n" for folder in packages)
    (_packages_of(environment / "bin" / "python") / "tidewater.pth").write_text(lines)


def _packages_of(python: Path) -> Path:
    query = "import sysconfig; print(sysconfig.get_path('purelib'))"
    return Path(subprocess.run([python, "-c", query], check=True, capture_output=True, text=True).stdout.strip())


def _pip_install(where: list[str | Path], locks: list[str], log: Path, console: Console) -> None:
    files = [part for lock in locks for part in ("-r", paths.lock(lock))]
    # Compiled once here: the pods mount these files read-only and would compile torch at every start.
    options = ["--require-hashes", "--compile-bytecode", "--no-progress"]
    run([_uv(), "pip", "install", *options, *where, *files], log=log, console=console)
