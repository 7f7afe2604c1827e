"""The command line: `python -m localcloud COMMAND [--state DIR]`.

interrupt and capacity, which change a running cloud, are in `operate`; the others are here.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from localcloud import cleanup, control, daemon, namespace, operate, preflight
from localcloud.errors import CloudError, NotRunning, StaleState
from localcloud.host import environment
from localcloud.instance import Instance, default_state

START_SECONDS = 60.0
STOP_SECONDS = 90.0
STATUS_SECONDS = 5.0
LOCK_SECONDS = 5.0
POLL_SECONDS = 0.1
KEPT_ON_RESET = ("instance.json",)
OF_THE_ACCOUNT = ("efs", "lustre", "clusters", "nodes")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command (of the process, if `argv` is None); an error of ours is one line on stderr."""
    arguments = _parser().parse_args(argv)
    os.environ["PATH"] = environment.path_of_host(os.environ.get("PATH", ""))
    try:
        command: Callable[[argparse.Namespace], int] = arguments.command
        return command(arguments)
    except CloudError as error:
        print(f"localcloud: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        print(f"localcloud: {error}", file=sys.stderr)
        return 1


def check(arguments: argparse.Namespace) -> int:
    """Check that a cloud can run on this machine, before anything is installed or built."""
    with contextlib.suppress(NotRunning):
        if _locked(Instance.load(arguments.state)):
            print(f"localcloud runs in {arguments.state}")
            return 0
    preflight.check_machine()
    print("this machine can run the one-machine cloud")
    return 0


def start(arguments: argparse.Namespace) -> int:
    """Start the daemon, in a new state directory if there is none, and remove what a killed one left."""
    preflight.check_root(os.geteuid())
    instance = Instance.create(arguments.state)
    region = arguments.region or instance.region
    if _status(instance) is not None:
        if region != instance.region:
            raise CloudError(
                f"localcloud runs in the region {instance.region}, and has only one: to start it in {region}, run "
                "`localcloud stop` first, after which nothing is left in it"
            )
        print(f"localcloud runs already on {instance.endpoint}")
        return 0
    _wait_for_lock(instance)
    instance = instance.in_region(region)
    left = cleanup.sweep(instance)
    if left:
        print(f"cleaned up after a daemon that was killed: {', '.join(left)}")
    if _forget_account(instance):
        print("the account of that daemon is lost: create its resources again")
    preflight.check(instance)
    shutil.rmtree(instance.state / "logs", ignore_errors=True)
    began = time.monotonic()
    log = instance.state / "logs" / "daemon.log"
    process = _spawn(instance, log)
    while _status(instance) is None:
        if process.poll() is not None:
            raise CloudError(f"the daemon ended at once: {_last_line(log)} (more in {log})")
        if time.monotonic() - began > START_SECONDS:
            process.terminate()
            raise CloudError(f"the daemon did not answer within {START_SECONDS:.0f} s: see {log}")
        time.sleep(POLL_SECONDS)
    print(f"localcloud is up on {instance.endpoint} after {time.monotonic() - began:.1f} s; to use it:\n")
    print(_shell(instance))
    return 0


def stop(arguments: argparse.Namespace) -> int:
    """Stop the daemon and everything it runs."""
    try:
        instance = Instance.load(arguments.state)
    except NotRunning as error:  # nothing was ever started there
        print(error)
        return 0
    return _stop(instance)


def _stop(instance: Instance) -> int:
    pid = _daemon_pid(instance)
    if pid is None:
        left = cleanup.sweep(instance)
        _forget_account(instance)
        print(f"localcloud does not run; cleaned up {', '.join(left)}" if left else "localcloud does not run")
        return 0
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_SECONDS
    while _locked(instance):
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            break
        time.sleep(POLL_SECONDS)
    cleanup.sweep(instance)
    _forget_account(instance)
    print("localcloud is stopped")
    return 0


def status(arguments: argparse.Namespace) -> int:
    """Print what runs."""
    instance = Instance.load(arguments.state)
    report = _status(instance)
    if report is None:
        raise NotRunning(f"no localcloud runs for {instance.state}: start it with `localcloud start`")
    if arguments.json:
        print(json.dumps({**report, "endpoint": instance.endpoint, "state": str(instance.state)}, indent=1))
        return 0
    print(f"{instance.endpoint}  instance {instance.id}  state {instance.state}")
    for cluster in report["clusters"]:
        print(f"cluster {cluster['name']}: {cluster['status']} {cluster['endpoint'] or ''}")
        for group in cluster["nodegroups"]:
            print(f"  node group {group['name']}: {group['status']}, {group['desired']} wanted")
            _print_nodes(group["nodes"])
        if cluster["selfManaged"]:
            print("  self-managed nodes")
            _print_nodes(cluster["selfManaged"])
    return 0


def _print_nodes(nodes: list[dict[str, Any]]) -> None:
    for node in nodes:
        ready = "Ready" if node["ready"] else node["phase"]
        print(f"    {node['instance']} {node['name']} {ready}")


def logs(arguments: argparse.Namespace) -> int:
    """Show a log, or the names of all logs."""
    folder = Instance.load(arguments.state).state / "logs"
    names = sorted(path.stem for path in folder.glob("*.log"))
    if arguments.name is None:
        print("\n".join(names))
        return 0
    if arguments.name not in names:
        raise CloudError(f"there is no log {arguments.name!r}; the logs are: {', '.join(names) or 'none'}")
    return subprocess.call(["tail", *(["-F"] if arguments.follow else ["-n", "100"]), folder / f"{arguments.name}.log"])


def reset(arguments: argparse.Namespace) -> int:
    """Stop, and delete everything in the state directory but the instance's addresses."""
    kept: tuple[str, ...] = KEPT_ON_RESET
    try:
        instance = Instance.load(arguments.state)
    except StaleState:  # another version's addresses are of no use
        instance, kept = Instance.named(arguments.state), ()
    _stop(instance)
    _check_unmounted(instance)
    for entry in instance.state.iterdir():
        if entry.name not in kept:
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    print(f"{instance.state} is empty")
    return 0


def env(arguments: argparse.Namespace) -> int:
    """Print the variables that let AWS clients and kubectl find the cloud."""
    if not arguments.json:
        print(_shell(Instance.load(arguments.state)))
        return 0
    try:
        values = exports(Instance.load(arguments.state))
    except NotRunning:  # nothing was ever started there
        values = {}
    print(json.dumps(values, indent=1))
    return 0


def serve(arguments: argparse.Namespace) -> int:
    """Run the daemon in the foreground."""
    instance = Instance.load(arguments.state)
    preflight.check_root(os.geteuid())
    os.umask(environment.UMASK)
    pid = os.getpid()
    namespace.enter()
    daemon.serve(instance, pid)
    return 0


def exports(instance: Instance) -> dict[str, str]:
    """Return the variables that let AWS clients and kubectl find the cloud and log in as its operator."""
    operator = instance.credentials()
    return {
        "AWS_ENDPOINT_URL": instance.endpoint,
        "AWS_ACCESS_KEY_ID": operator.access_key,
        "AWS_SECRET_ACCESS_KEY": operator.secret_key,
        "AWS_REGION": instance.region,
        "AWS_DEFAULT_REGION": instance.region,
        "AWS_EC2_METADATA_DISABLED": "true",
        "KUBECONFIG": str(instance.kubeconfig),
        # A proxy for the internet must not be asked for addresses of this machine.
        "NO_PROXY": ",".join(("127.0.0.1", "localhost", instance.host_address, instance.cloud_address)),
    }


def _shell(instance: Instance) -> str:
    """Return `exports` as shell commands; they append to NO_PROXY. Of its two spellings a program reads one."""
    values = exports(instance)
    own = values.pop("NO_PROXY")
    lines = [f"export {name}={shlex.quote(value)}" for name, value in values.items()]
    lines.append('no_proxy="${NO_PROXY:-${no_proxy-}}"')
    lines.append(f'[ "$no_proxy" = "*" ] || no_proxy="${{no_proxy:+$no_proxy,}}{own}"')
    return "\n".join([*lines, 'export NO_PROXY="$no_proxy" no_proxy'])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="localcloud", description="A cloud on one machine.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--state", type=Path, default=default_state(), help="state directory (default: %(default)s)")
    for command in (check, start, stop, status, logs, env, reset, operate.interrupt, operate.capacity, serve):
        text = (command.__doc__ or "").partition(".")[0]
        sub = commands.add_parser(command.__name__, help=text, description=text, parents=[shared])
        sub.set_defaults(command=command)
        if command is start:
            sub.add_argument("--region", help="AWS region of the cloud (default: that of the last start; us-west-2)")
        if command in (status, env):
            sub.add_argument("--json", action="store_true", help="as JSON")
        if command is logs:
            sub.add_argument("name", nargs="?", help="which log; without it, their names")
            sub.add_argument("-f", "--follow", action="store_true", help="go on as it grows")
        operate.add_arguments(command, sub)
    return parser


def _spawn(instance: Instance, log: Path) -> subprocess.Popen[bytes]:
    log.parent.mkdir(parents=True, exist_ok=True)
    root = str(Path(__file__).resolve().parent.parent)
    imports = os.pathsep.join(part for part in (root, os.environ.get("PYTHONPATH")) if part)
    command = [sys.executable, "-m", "localcloud", "serve", "--state", str(instance.state)]
    with log.open("wb") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**environment.of_host(os.environ), "PYTHONPATH": imports},
            cwd="/",
            start_new_session=True,
        )


def _status(instance: Instance) -> dict[str, Any] | None:
    """Return the daemon's report, or None if this instance's daemon doesn't answer."""
    try:
        with control.send(instance.endpoint + daemon.STATUS_PATH, STATUS_SECONDS) as answer:
            report: dict[str, Any] = json.loads(answer.read())
    except (urllib.error.URLError, OSError, ValueError):
        return None
    return report if report.get("id") == instance.id else None


def _locked(instance: Instance) -> bool:
    """Return whether a daemon holds this state directory."""
    path = instance.state / "daemon.lock"
    if not path.exists():
        return False
    with path.open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _wait_for_lock(instance: Instance) -> None:
    """Return once no daemon holds the state directory; one that was killed may take a moment to end."""
    deadline = time.monotonic() + LOCK_SECONDS
    while _locked(instance):
        if time.monotonic() > deadline:
            raise CloudError(
                f"a daemon is starting or stopping for {instance.state}: try again in a few seconds, "
                f"or end it with `localcloud stop --state {instance.state}`"
            )
        time.sleep(POLL_SECONDS)


def _daemon_pid(instance: Instance) -> int | None:
    if not _locked(instance):
        return None
    try:
        pid = int(json.loads(daemon.record_path(instance).read_text())["pid"])
        if pid <= 1:  # a signal to 0 or -1 would go to many processes
            raise ValueError(f"process {pid}")
        return pid
    except (OSError, ValueError, KeyError) as error:
        raise CloudError(f"a daemon is starting for {instance.state}: try again in a few seconds") from error


def _forget_account(instance: Instance) -> bool:
    """Delete what belonged to the account of a daemon that is gone: file systems, cluster data, its record."""
    record = daemon.record_path(instance)
    killed = record.exists()
    record.unlink(missing_ok=True)
    _check_unmounted(instance)
    for name in OF_THE_ACCOUNT:
        shutil.rmtree(instance.state / name, ignore_errors=True)
    return killed


def _check_unmounted(instance: Instance) -> None:
    """Raise if something is mounted in the state directory: deleting a folder would delete what is mounted in it."""
    if left := cleanup.mounts(instance, Path("/proc/self/mounts").read_text()):
        raise CloudError(f"{left[0]} is still mounted: unmount it (`umount {left[0]}`) and try again")


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return lines[-1] if lines else "its log is empty"
