"""The language host: under the real engine, and the parts that decide."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from localcloud.standins import language_host
from pulumi.runtime.proto import language_pb2

from packages.localcloud.tests.processes import is_alive
from packages.localcloud.tests.standins.engine_stack import EngineStack

PATIENCE_SECONDS = 120
"""For what takes a second when nothing else runs; the program would sleep for 600 s."""


def request(**fields: object) -> language_pb2.RunRequest:
    info = language_pb2.ProgramInfo(root_directory="/p", program_directory="/p/src", entry_point=".")
    return language_pb2.RunRequest(info=info, pwd="/p", project="t", stack="dev", **fields)  # type: ignore[arg-type]


def test_the_program_gets_its_settings() -> None:
    arguments = language_host.run_arguments(request(dryRun=True, parallel=16, monitor_address="m"), "engine")
    assert arguments["program"] == "/p/src/."
    assert arguments["settings"] == {
        "monitor": "m",
        "engine": "engine",
        "project": "t",
        "stack": "dev",
        "parallel": 16,
        "dry_run": True,
        "organization": "organization",
        "root_directory": "/p",
    }


def test_the_program_does_not_see_the_path_to_this_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{language_host._CHECKOUT}{os.pathsep}/own")
    environment = language_host.run_environment(request(config={"t:a": "1"}, configSecretKeys=["t:b"]))
    assert environment["PYTHONPATH"] == "/own"
    assert environment["PULUMI_CONFIG"] == '{"t:a": "1"}'
    assert environment["PULUMI_CONFIG_SECRET_KEYS"] == '["t:b"]'


def test_the_plugins_of_the_installed_sdks_are_named(tmp_path: Path) -> None:
    package = tmp_path / "lib/python3.11/site-packages/pulumi_thing"
    package.mkdir(parents=True)
    (package / "pulumi-plugin.json").write_text('{"resource": true, "name": "thing", "version": "1.2.3"}')
    found = language_host._plugins(str(tmp_path / "bin/python"))
    assert found == [language_host.Plugin("thing", "1.2.3", "")]


@pytest.mark.e2e
class TestUnderTheEngine:
    """The unmodified engine and one stack, which never gets a resource; each test is a few commands."""

    @pytest.fixture(scope="class")
    def stack(self, tmp_path_factory: pytest.TempPathFactory) -> EngineStack:
        return EngineStack(tmp_path_factory.mktemp("stack"))

    def test_config_and_secrets_reach_the_program_and_outputs_come_back(self, stack: EngineStack) -> None:
        stack.program(
            "import pulumi\n"
            "c = pulumi.Config()\n"
            "print('said', pulumi.get_stack(), pulumi.get_project(), pulumi.runtime.is_dry_run())\n"
            "pulumi.export('plain', c.require_int('n'))\n"
            "pulumi.export('object', c.require_object('o'))\n"
            "pulumi.export('secret', c.require_secret('s'))\n"
        )
        stack.pulumi("config", "set", "n", "3")
        stack.pulumi("config", "set", "--path", "o.a", "x")
        stack.pulumi("config", "set", "--secret", "s", "hush")
        assert "said dev t True" in stack.pulumi("preview")
        # Both runs of one command use the same host.
        printed = stack.pulumi("up", "--yes")
        assert "said dev t True" in printed
        assert "said dev t False" in printed
        assert stack.outputs() == {"plain": 3, "object": {"a": "x"}, "secret": "hush"}
        assert "hush" not in stack.state()

    def test_an_exception_is_shown_from_the_programs_first_line_on(self, stack: EngineStack) -> None:
        stack.program("def f():\n    raise ValueError('boom')\n\nf()\n")
        printed = stack.up(fails=True)
        assert "ValueError: boom" in printed
        assert "__main__.py" in printed
        assert "runpy" not in printed

    def test_a_run_error_is_shown_without_a_traceback(self, stack: EngineStack) -> None:
        stack.program("import pulumi\nraise pulumi.RunError('set workers to 1..8')\n")
        printed = stack.up(fails=True)
        assert "set workers to 1..8" in printed
        assert "Traceback" not in printed

    def test_an_exit_code_fails_the_update(self, stack: EngineStack) -> None:
        stack.program("import os\nos._exit(7)\n")
        assert "non-zero exit code: 7" in stack.up(fails=True)

    def test_a_program_without_main_is_named(self, stack: EngineStack) -> None:
        (stack.folder / "__main__.py").unlink()
        assert "__main__.py" in stack.up(fails=True)

    # The last one: an engine that is killed leaves the stack locked.
    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["interrupted", "killed"])
    def test_the_program_ends_with_the_engine(self, stack: EngineStack, number: int) -> None:
        (stack.folder / "pid").unlink(missing_ok=True)
        stack.program("import os, pathlib, time\npathlib.Path('pid').write_text(str(os.getpid()))\ntime.sleep(600)\n")
        running = stack.start("up", "--yes", "--skip-preview")
        pid = _eventually(stack.folder / "pid")
        running.send_signal(number)
        running.communicate(timeout=PATIENCE_SECONDS)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while is_alive(pid) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not is_alive(pid)


def _eventually(file: Path) -> int:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (file.exists() and file.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return int(file.read_text())
