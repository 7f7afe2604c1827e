"""Several processes run the tests, module by module. The quick tests come first, so that a mistake shows in seconds."""

from __future__ import annotations

import gc
import os
import signal
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path

import hypothesis
import pytest
from xdist.remote import Producer  # type: ignore[import-untyped]
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

# Hypothesis also fails a test that is slow: on a busy machine every test is.
hypothesis.settings.register_profile(
    "new examples", deadline=None, derandomize=False, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
# The same examples in each run: `make test` tells what a change breaks. `make soak` looks for new examples.
hypothesis.settings.register_profile(
    "any machine", parent=hypothesis.settings.get_profile("new examples"), derandomize=True
)
hypothesis.settings.load_profile("any machine")


ROOT = Path(__file__).parent
STACKS = ROOT / "tests/e2e"
"""The modules of a folder in it use one cloud, in the order of their names."""
LONGEST = STACKS / "life"
TWO_STACKS = 3
"""With so many processes, one begins with `LONGEST` and one with the other stacks, and the others with the quick tests.

A stack waits for 30 to 40 % of the time, and needs 4 GiB of memory, so there are never more than two.
"""
SHOWN_MODULES = 20


def pytest_configure(config: pytest.Config) -> None:
    """Let the processes that tests start import the packages of this checkout, as these here do.

    Tests reach nothing but this machine, and some start parts of a cloud without its daemon: neither a proxy nor a
    umask of the shell may get there, nor an ignored SIGINT, as in what a script starts in the background. Each process
    computes with one thread, since the other core is another's: threads of torch that wait for each other would keep
    both cores busy.
    """
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ["PYTHONPATH"] = os.pathsep.join(map(str, config.getini("pythonpath")))
    os.umask(0o022)
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        del os.environ[name]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order the tests. What takes long comes first of the end-to-end tests, or it would be alone at the end."""
    at_once = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) >= TWO_STACKS

    def place(item: pytest.Item) -> tuple[bool, ...]:
        on_a_stack = STACKS in item.path.parents[1:]
        quick = item.get_closest_marker("e2e") is None
        return not (at_once and on_a_stack), not quick, not on_a_stack, LONGEST not in item.path.parents

    items.sort(key=place)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Spare the garbage collector what the modules have brought: 850,000 objects took a quarter of the tests' time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(20_000)
        gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the modules that took longest."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[report.nodeid.partition("::")[0]] += report.duration
    if not seconds:
        return
    terminalreporter.section(f"slowest {SHOWN_MODULES} modules")
    for module, duration in sorted(seconds.items(), key=lambda item: -item[1])[:SHOWN_MODULES]:
        terminalreporter.write_line(f"{duration:8.1f}s {module}")


class ByCloud(LoadFileScheduling):  # type: ignore[misc] # xdist has no types
    """Gives whole modules to the processes. All modules of a folder that shares one cloud go to one process."""

    def _split_scope(self, nodeid: str) -> str:
        module: str = super()._split_scope(nodeid)
        folders = (ROOT / module).parents
        if STACKS not in folders[1:]:
            return module
        folder = folders[folders.index(STACKS) - 1]
        return str(folder if folder == LONGEST or self.numnodes < TWO_STACKS else STACKS)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByCloud | None:
    """``--dist loadfile`` is by cloud. Marks (``--dist loadgroup``) are of no effect with pytest 9.2, xdist 3.8."""
    return ByCloud(config, log) if config.getvalue("dist") == "loadfile" else None
