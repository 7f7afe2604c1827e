"""The command line's promises that need no daemon."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from localcloud import cli, daemon, preflight
from localcloud.errors import CloudError, DiskFull, NotRoot, PortInUse, ToolMissing
from localcloud.host import environment
from localcloud.instance import Instance


@pytest.fixture
def instance(tmp_path: Path) -> Instance:
    return Instance.create(tmp_path / "state")


COMMANDS = ("start", "stop", "status", "logs", "env", "reset", "capacity", "serve")


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("record", [None, '{"version": 1, "id": "x", "state": "/"}'], ids=["files", "a foreign record"])
def test_every_command_refuses_a_foreign_folder_with_one_line_and_leaves_it_alone(
    tmp_path: Path,
    command: str,
    record: str | None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    (tmp_path / "thesis.tex").write_text("years of work")
    if record is not None:
        (tmp_path / "instance.json").write_text(record)
    before = contents(tmp_path)
    assert cli.main([command, "--state", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert str(tmp_path) in error
    assert error.count("\n") == 1
    assert contents(tmp_path) == before


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "start"])
def test_only_start_makes_a_state_directory(tmp_path: Path, command: str) -> None:
    cli.main([command, "--state", str(tmp_path / "state")])
    assert list(tmp_path.iterdir()) == []


def test_reset_keeps_the_addresses_and_drops_the_rest(instance: Instance) -> None:
    (instance.state / "logs").mkdir()
    assert cli.main(["reset", "--state", str(instance.state)]) == 0
    assert [path.name for path in instance.state.iterdir()] == ["instance.json"]
    assert Instance.load(instance.state) == instance


def test_reset_empties_a_state_of_another_version(instance: Instance) -> None:
    path = instance.state / "instance.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": 0}))
    (instance.state / "logs").mkdir()
    assert cli.main(["reset", "--state", str(instance.state)]) == 0
    assert list(instance.state.iterdir()) == []


@pytest.mark.parametrize(
    ("environ", "hosts"),
    [
        pytest.param({}, "", id="none"),
        pytest.param({"NO_PROXY": "intra"}, "intra,", id="upper case"),
        pytest.param({"no_proxy": "intra"}, "intra,", id="lower case"),
    ],
)
def test_env_gives_a_shell_what_it_needs(
    environ: dict[str, str], hosts: str, instance: Instance, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["env", "--state", str(instance.state)]) == 0
    shown = 'echo "$AWS_ENDPOINT_URL $AWS_ACCESS_KEY_ID $AWS_SECRET_ACCESS_KEY $KUBECONFIG $NO_PROXY $no_proxy"'
    script = f"{capsys.readouterr().out}\n{shown}"
    said = subprocess.run(["sh", "-euc", script], env=environ, capture_output=True, text=True, check=True)
    operator = instance.credentials()
    without_proxy = f"{hosts}127.0.0.1,localhost,{instance.host_address},{instance.cloud_address}"
    assert said.stdout.split() == [
        *(instance.endpoint, operator.access_key, operator.secret_key, str(instance.state / "kubeconfig")),
        *(without_proxy, without_proxy),
    ]


def test_a_shell_that_asks_no_proxy_at_all_stays_so(instance: Instance, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["env", "--state", str(instance.state)]) == 0
    script = f'{capsys.readouterr().out}\nprintf %s "$NO_PROXY"'
    said = subprocess.run(["sh", "-euc", script], env={"NO_PROXY": "*"}, capture_output=True, text=True, check=True)
    assert said.stdout == "*"


OF_A_PERSON = {
    **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"), "http://p:1"),
    "AWS_PROFILE": "prod",
    "ETCD_NAME": "mine",
    "KUBECONFIG": "/h/config",
    "HOME": "/h",
    "LANG": "de_DE.UTF-8",
    "SSL_CERT_FILE": "/h/ca.pem",
    "GODEBUG": "x509sha1=1",
    "NO_PROXY": "intra",
    "CONTAINERD_NAMESPACE": "mine",
}


def test_the_daemon_has_nothing_of_the_shell_but_where_its_programs_are(
    instance: Instance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, log = tmp_path / "python", instance.state / "logs" / "daemon.log"
    program.write_text("#!/bin/sh\nexec env -0\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    for name, value in {**OF_A_PERSON, "PATH": "/opt/bin", "LOCALCLOUD_TOOLS": "/t", "PYTHONPATH": "/p"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    assert cli._spawn(instance, log).wait(60) == 0
    found = dict(line.split("=", 1) for line in log.read_text().split("\0") if line and not line.startswith("PWD="))
    sources = str(Path(cli.__file__).parents[1])
    assert found == {
        "PATH": f"/opt/bin:{environment.PATH}",
        "HOME": "/root",
        "LANG": "C.UTF-8",
        "LOCALCLOUD_TOOLS": "/t",
        "PYTHONPATH": f"{sources}:/p",
    }


def test_a_command_reaches_the_daemon_although_the_shell_has_a_proxy(
    instance: Instance, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Daemon(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"id": instance.id, "clusters": []}).encode())

    for name, value in OF_A_PERSON.items():
        monkeypatch.setenv(name, value)
    server = ThreadingHTTPServer(("127.0.0.1", instance.port), Daemon)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        assert cli.main(["status", "--state", str(instance.state)]) == 0
    finally:
        server.shutdown()
        server.server_close()
    assert instance.endpoint in capsys.readouterr().out


@pytest.mark.parametrize(("region", "status"), [("us-west-2", 0), ("eu-west-1", 1)], ids=["its own", "another"])
def test_a_cloud_that_runs_stays_in_its_region(
    region: str, status: int, instance: Instance, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(cli, "_status", lambda _: {"id": instance.id})
    assert cli.main(["start", "--state", str(instance.state), "--region", region]) == status
    assert ("runs in the region us-west-2, and has only one: to start it in eu-west-1" in capsys.readouterr().err) == (
        status == 1
    )
    assert Instance.load(instance.state).region == "us-west-2"


def test_the_daemon_has_a_umask_of_its_own(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    """A person's may be 027 or 077, with which pods that aren't root can't read their images."""
    during: list[int] = []
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("localcloud.namespace.enter", lambda: None)
    monkeypatch.setattr("localcloud.daemon.serve", lambda instance, pid: during.append(os.umask(0o022)))
    before = os.umask(0o077)
    try:
        assert cli.main(["serve", "--state", str(instance.state)]) == 0
    finally:
        os.umask(before)
    assert during == [0o022]


def test_status_without_a_daemon_says_how_to_start_one(instance: Instance, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["status", "--state", str(instance.state)]) == 1
    error = capsys.readouterr().err
    assert "localcloud start" in error
    assert error.count("\n") == 1


def test_a_start_leaves_a_daemon_that_is_starting_alone(
    instance: Instance, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(cli, "LOCK_SECONDS", 0.0)
    monkeypatch.setattr("localcloud.cleanup.sweep", lambda _: pytest.fail("swept while a daemon runs"))
    with (instance.state / "daemon.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert cli.main(["start", "--state", str(instance.state)]) == 1
    assert "a daemon is starting or stopping" in capsys.readouterr().err


def test_an_unknown_log_is_answered_with_those_there_are(
    instance: Instance, capsys: pytest.CaptureFixture[str]
) -> None:
    logs = instance.state / "logs"
    logs.mkdir()
    (logs / "daemon.log").write_text("")
    assert cli.main(["logs", "--state", str(instance.state), "demon"]) == 1
    assert "the logs are: daemon" in capsys.readouterr().err


def test_without_root_the_remedy_is_named() -> None:
    with pytest.raises(NotRoot, match="sudo"):
        preflight.check_root(1000)


def test_a_full_disk_is_named_with_what_is_needed(tmp_path: Path) -> None:
    with pytest.raises(DiskFull, match=r"0\.5 GiB free.*--state"):
        preflight.check_disk(512 * 1024**2, tmp_path)


def test_a_port_in_use_is_named(instance: Instance) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", instance.port))
        other.listen()
        with pytest.raises(PortInUse, match=str(instance.port)):
            preflight.check_port(instance)


def test_a_missing_tool_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CloudError, match=r"containerd.*make up"):
        preflight.check_tools()


def test_a_tool_that_was_not_built_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("shutil.which", lambda tool: f"/bin/{tool}")
    monkeypatch.setenv("LOCALCLOUD_TOOLS", str(tmp_path))
    with pytest.raises(ToolMissing, match=r"bin/etcd is missing.*make install"):
        preflight.check_tools()


def checked(state: Path, *before: str) -> subprocess.CompletedProcess[str]:
    """Run `localcloud check` without a library of others, started by the command `before`."""
    source = str(Path(cli.__file__).parents[1])
    code = "import sys; sys.path.insert(0, sys.argv[1]); from localcloud.cli import main; sys.exit(main(sys.argv[2:]))"
    command = [*before, sys.executable, "-I", "-S", "-c", code, source, "check", "--state", str(state)]
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.e2e
def test_the_check_needs_nothing_but_the_standard_library(tmp_path: Path) -> None:
    done = checked(tmp_path / "state")
    assert (done.returncode, done.stdout, done.stderr) == (0, "this machine can run the one-machine cloud\n", "")
    assert not (tmp_path / "state").exists()


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("capability", "text"),
    [
        pytest.param("net_admin", "CAP_NET_ADMIN (for network interfaces", id="network"),
        pytest.param("sys_admin", "CAP_SYS_ADMIN (for namespaces, mounts", id="system"),
    ],
)
def test_a_capability_that_root_lacks_is_named_before_anything_is_tried(
    tmp_path: Path, capability: str, text: str
) -> None:
    done = checked(tmp_path, "setpriv", f"--bounding-set=-{capability}", f"--inh-caps=-{capability}")
    assert done.returncode == 1
    assert text in done.stderr
    assert "virtual machine" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.e2e
def test_read_only_cgroups_are_named(tmp_path: Path) -> None:
    read_only = 'for folder in /sys/fs/cgroup /sys/fs/cgroup/*/; do mount -o remount,bind,ro "$folder" || :; done'
    done = checked(tmp_path, "unshare", "--mount", "sh", "-c", f'{read_only} 2>/dev/null; exec "$@"', "sh")
    assert done.returncode == 1
    assert "/sys/fs/cgroup is read-only" in done.stderr
    assert "virtual machine" in done.stderr


def test_a_machine_on_which_the_cloud_runs_is_not_checked_for_another_one(
    instance: Instance, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(preflight, "check_machine", lambda: pytest.fail("checked"))
    with (instance.state / "daemon.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert cli.main(["check", "--state", str(instance.state)]) == 0
    assert capsys.readouterr().out == f"localcloud runs in {instance.state}\n"


@pytest.mark.parametrize("pid", [0, -1, 1])
def test_a_record_that_names_no_process_of_its_own_gets_no_signal(
    instance: Instance, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], pid: int
) -> None:
    monkeypatch.setattr("os.kill", lambda *signal: pytest.fail(f"signalled {signal}"))
    daemon.record_path(instance).write_text(json.dumps({"pid": pid}))
    with (instance.state / "daemon.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert cli.main(["stop", "--state", str(instance.state)]) == 1
    assert "a daemon is starting" in capsys.readouterr().err
