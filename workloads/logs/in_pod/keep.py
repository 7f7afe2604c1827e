"""Keeps the logs of a namespace's jobs as files: follows the log of each pod through the API server.

    python3 keep.py --directory /data/logs --days 14 --selector group-name=elastic.pytorch.org \\
        --job-label job-name --uid-label tidewater.dev/job-uid --container elasticjob-worker

A pod's lines go into DIRECTORY/JOB/JOB_UID/POD_UID.log as the kubelet writes them, each behind its time. Before a file
is larger than LARGEST_BYTES, it takes the place of the pod's `.log.1`. A pod's workers never wait for this program: if
the volume is full or slow, or the program is started again, it goes on after the last line in the file, as long as the
kubelet still has what follows. The lines of a pod that is deleted meanwhile are lost.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import re
import signal
import ssl
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
API = "https://kubernetes.default.svc"
LARGEST_BYTES = 16 << 20
"""Of a file; a pod has two at most."""

WATCH_SECONDS = 240
SILENT_SECONDS = 300.0
"""A log that says nothing for this long is asked for again: its connection may be dead."""

PAUSE_SECONDS = 2.0
FULL_SECONDS = 30.0
"""Between two attempts to write to a volume that refuses."""

TIDY_SECONDS = 3600.0
STACK_BYTES = 512 << 10
"""Of a thread; each pod has one."""

LONGEST_LINE = 256 << 10
"""In bytes: a progress bar is a line that may grow for days. A longer one is divided."""

_CHUNK = 64 << 10
_DAY = 86_400
STAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.\d+Z ")
"""With nine digits after the point, in UTC: such times can be compared as text."""

Object = Mapping[str, Any]


class Pod(NamedTuple):
    """A pod of a job, with a log to read.

    Attributes:
        over: whether its container has ended for good.
    """

    name: str
    uid: str
    job: str
    job_uid: str
    container: str
    over: bool

    @property
    def path(self) -> Path:
        """Return the place of its log below the directory."""
        return Path(self.job, self.job_uid, f"{self.name}_{self.uid}.log")


@dataclass(frozen=True)
class Names:
    """How pods of jobs are found: their labels, and the name of the container that trains if there are several."""

    selector: str
    job_label: str
    uid_label: str
    container: str

    def pod(self, found: Object) -> Pod | None:
        """Return a pod that has a log; None for one that has none yet, or is of no job."""
        about, status = found["metadata"], found.get("status") or {}
        labels = about.get("labels") or {}
        job, uid = labels.get(self.job_label), labels.get(self.uid_label)
        containers = [each["name"] for each in found["spec"]["containers"]]
        own = self.container if self.container in containers else containers[0]
        states = [
            state
            for each in status.get("containerStatuses") or ()
            if each["name"] == own
            for state in (*(each.get("state") or ()), *(each.get("lastState") or ()))
        ]
        if not (job and uid and {"running", "terminated"}.intersection(states)):
            return None
        return Pod(about["name"], about["uid"], job, uid, own, status.get("phase") in ("Succeeded", "Failed"))


class Cluster:
    """The API server, with the rights of the pod's service account, in the pod's namespace."""

    def __init__(self, account: Path = ACCOUNT, api: str = API) -> None:
        self.account = account
        self.api = f"{api}/api/v1/namespaces/{(account / 'namespace').read_text().strip()}/pods"

    @contextlib.contextmanager
    def ask(self, path: str = "", *, seconds: float = 30.0, **query: str | int) -> Iterator[http.client.HTTPResponse]:
        """Send a GET request; yield the answer.

        Raises:
            OSError: there is no answer, a refusal, or a broken answer.
        """
        headers = {"Authorization": f"Bearer {(self.account / 'token').read_text()}"}
        request = urllib.request.Request(f"{self.api}{path}?{urllib.parse.urlencode(query)}", headers=headers)
        context = ssl.create_default_context(cafile=str(self.account / "ca.crt"))
        try:
            with urllib.request.urlopen(request, timeout=seconds, context=context) as answer:
                yield answer
        except http.client.HTTPException as error:  # it is no OSError
            raise OSError(f"broken answer: {error!r}") from error

    def snapshots(self, selector: str) -> Iterator[Mapping[str, Object]]:
        """Yield the selected pods by uid, now and after each change, until the watch ends.

        Raises:
            OSError, ValueError: the API server does not answer, refuses, or answers something else.
        """
        with self.ask(labelSelector=selector) as answer:
            listed = json.load(answer)
        found = {each["metadata"]["uid"]: each for each in listed["items"]}
        yield dict(found)
        since = {"resourceVersion": listed["metadata"]["resourceVersion"], "timeoutSeconds": WATCH_SECONDS}
        with self.ask(labelSelector=selector, watch=1, seconds=WATCH_SECONDS + 30, **since) as answer:
            for line in answer:
                change = json.loads(line)
                if change["type"] == "ERROR":  # the version is too old
                    return
                found.pop(change["object"]["metadata"]["uid"], None)
                if change["type"] != "DELETED":
                    found[change["object"]["metadata"]["uid"]] = change["object"]
                yield dict(found)

    def uid(self, pod: str) -> str:
        """Return the uid of the pod that has the name now. Raise OSError if there is none."""
        with self.ask(f"/{pod}") as answer:
            return str(json.load(answer)["metadata"]["uid"])


class File:
    """A pod's file, in which no line is twice."""

    def __init__(self, path: Path, say: Callable[[str], None]) -> None:
        self._path, self._say = path, say
        self.last = b""
        """The time of the last line."""
        self._repeats = False
        older = path.with_name(f"{path.name}.1")
        for each in (older, path):
            self.last = self._restored(each) or self.last

    def since(self) -> str:
        """Return the time from which to read on, in whole seconds; empty for all. Old lines may come first."""
        self._repeats = bool(self.last)
        return f"{self.last[:19].decode()}Z" if self.last else ""

    def append(self, lines: bytes) -> None:
        """Write whole lines, without those that are in the file. Return when the volume has them."""
        if self._repeats:
            every = re.findall(rb"[^\n]*\n", lines)
            known = next((at for at, line in enumerate(every) if _time(line) > self.last), len(every))
            self._repeats, lines = known == len(every), b"".join(every[known:])
        if not lines:
            return
        while not self._wrote(lines):
            time.sleep(FULL_SECONDS)
        self.last = _time(lines[lines.rfind(b"\n", 0, -1) + 1 :]) or self.last

    def _wrote(self, lines: bytes) -> bool:
        """Write lines whole or not at all; return whether that was possible."""
        size: int | None = None
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            size = self._path.stat().st_size if self._path.exists() else 0
            if size and size + len(lines) > LARGEST_BYTES:
                self._path.replace(self._path.with_name(f"{self._path.name}.1"))
                size = 0
            with self._path.open("ab") as file:
                file.write(lines)
        except OSError as error:
            self._say(f"{self._path.name} waits: {error.strerror or error}")
            with contextlib.suppress(OSError):
                if size is not None:
                    os.truncate(self._path, size)
            return False
        return True

    def _restored(self, path: Path) -> bytes:
        """Return the time of a file's last line; take off a line that was cut off when the program ended."""
        try:
            with path.open("rb+") as file:
                size = file.seek(0, os.SEEK_END)
                for reach in (_CHUNK, LARGEST_BYTES):
                    begin = file.seek(max(0, size - reach))
                    tail = file.read()
                    whole, end, _ = tail.rpartition(b"\n")
                    times = filter(None, map(_time, reversed(whole.split(b"\n"))))
                    if found := next(times, b""):
                        file.truncate(begin + len(whole + end))
                        return found
                file.truncate(0)
        except OSError:
            pass
        return b""


def _time(line: bytes) -> bytes:
    """Return the time before a line; empty for a message of the kubelet's own."""
    found = STAMP.match(line)
    return found[0] if found else b""


class Keeper:
    """Follows the pods of all jobs, each in a thread."""

    def __init__(self, cluster: Cluster, directory: Path, names: Names) -> None:
        self._cluster, self._directory, self._names = cluster, directory, names
        self._pods: dict[str, Pod] = {}
        self._begun: set[str] = set()
        """Uids of pods that are being read, or have been."""

    def see(self, found: Mapping[str, Object]) -> None:
        """Begin to read the pods that are new."""
        self._pods = {uid: pod for uid, each in found.items() if (pod := self._names.pod(each))}
        self._begun &= found.keys()
        for uid in self._pods.keys() - self._begun:
            self._begun.add(uid)
            threading.Thread(target=self.follow, args=(self._pods[uid],), daemon=True).start()

    def follow(self, pod: Pod) -> None:
        """Read a pod's log until all of it is kept, or it is gone."""
        file = File(self._directory / pod.path, say)
        while True:
            now = self._pods.get(pod.uid)
            over = now is None or now.over  # then a stream that ends well has the whole log
            try:
                if self._cluster.uid(pod.name) != pod.uid:
                    return
                self._copy(pod, file)
                if over:
                    return
            except urllib.error.HTTPError as error:
                if error.code == HTTPStatus.NOT_FOUND:
                    return
                say(f"{pod.name}: {error}")
            except (OSError, ValueError) as error:
                if not isinstance(error, TimeoutError):
                    say(f"{pod.name}: {error}")
            time.sleep(PAUSE_SECONDS)

    def _copy(self, pod: Pod, file: File) -> None:
        """Read on until the stream ends: with the container, or with the connection."""
        since, rest = file.since(), b""
        query = {"sinceTime": since} if since else {}
        path = f"/{pod.name}/log"
        with self._cluster.ask(
            path, seconds=SILENT_SECONDS, follow="true", timestamps="true", container=pod.container, **query
        ) as answer:
            while chunk := answer.read1(_CHUNK):
                whole, end, rest = (rest + chunk).rpartition(b"\n")
                if len(rest) > LONGEST_LINE:
                    whole, end, rest = whole + end + rest, b"\n", b""
                file.append(whole + end)
        if rest:  # a container's last line without an end; a connection that breaks is an error
            file.append(rest + b"\n")


def tidy(directory: Path, before: float) -> None:
    """Delete the files that were last written to before a time, and the folders that are empty then."""
    for file in directory.glob("*/*/*.log*"):
        with contextlib.suppress(OSError):
            if file.lstat().st_mtime < before:
                file.unlink()
    for folder in (*directory.glob("*/*/"), *directory.glob("*/")):
        with contextlib.suppress(OSError):  # it is not empty
            folder.rmdir()


def say(text: str) -> None:
    """Write a line to the program's own log."""
    print(text, flush=True)


def _tidy_for_ever(directory: Path, days: int) -> None:
    while True:
        tidy(directory, time.time() - days * _DAY)
        time.sleep(TIDY_SECONDS)


def main(arguments: Sequence[str]) -> None:
    """Keep logs until the pod ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--selector", "--job-label", "--uid-label", "--container"):
        parser.add_argument(name, required=True)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--days", type=int, required=True)
    given = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))  # process 1 of a container ignores it without a handler
    threading.stack_size(STACK_BYTES)
    threading.Thread(target=_tidy_for_ever, args=(given.directory, given.days), daemon=True).start()
    cluster = Cluster()
    keeper = Keeper(cluster, given.directory, Names(given.selector, given.job_label, given.uid_label, given.container))
    while True:
        try:
            for found in cluster.snapshots(given.selector):
                keeper.see(found)
        except (OSError, ValueError) as error:
            say(f"the API server does not answer: {error}")
            time.sleep(PAUSE_SECONDS)


if __name__ == "__main__":
    main(sys.argv[1:])
