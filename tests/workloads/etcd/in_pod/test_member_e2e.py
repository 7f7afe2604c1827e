"""How a member of etcd starts: three real ones on the loopback, which lose processes and disks."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from base64 import b64decode, b64encode
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from scripts import toolchain
from tests.elastic.workers import free_port
from tidewater.elastic.launch.lifeline import bound_to
from workloads.etcd import manifests
from workloads.etcd.in_pod import member
from workloads.etcd.in_pod.member import Member, Seen

pytestmark = pytest.mark.e2e

PATIENCE_SECONDS = 60.0


@dataclass
class Place:
    """Three members, their folders and processes."""

    folder: Path
    members: list[Member]
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    starts: int = 0

    def begin(self, number: int) -> subprocess.Popen[bytes]:
        """Run what a pod runs: the program, then etcd."""
        own = self.members[number]
        self.starts += 1
        config = self.folder / f"{own.name}.json"
        port = free_port()
        options = {
            **manifests.options("lab", len(self.members)),
            "data-dir": str(self.disk(number)),
            "listen-client-urls": own.client,
            "advertise-client-urls": own.client,
            "listen-peer-urls": own.peer,
            "initial-advertise-peer-urls": own.peer,
            "listen-metrics-urls": f"http://127.0.0.1:{port}",
            "heartbeat-interval": 50,
            "election-timeout": 500,
            "unsafe-no-fsync": True,
        }
        command = [sys.executable, member.__file__, "--name", own.name, "--uid", f"uid-{self.starts}"]
        command += ["--options", json.dumps(options), "--config", str(config)]
        command += [f"--member={each.name},{each.peer},{each.client}" for each in self.members]
        text = f'"$@" && exec {toolchain.binary("etcd")} --config-file={config}'
        with self.log(number).open("ab") as log:
            process = subprocess.Popen(
                ["sh", "-c", text, "sh", *command],
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,
                preexec_fn=bound_to(os.getpid()),
            )
        self.processes[own.name] = process
        return process

    def disk(self, number: int) -> Path:
        return self.folder / self.members[number].name

    def log(self, number: int) -> Path:
        return self.folder / f"{self.members[number].name}.log"

    def kill(self, *numbers: int, disk: bool) -> None:
        """Kill members, and their disks if asked for."""
        for number in numbers:
            process = self.processes.pop(self.members[number].name)
            os.killpg(process.pid, 9)
            process.wait()
            if disk:
                shutil.rmtree(self.disk(number))

    def close(self) -> None:
        for number, each in enumerate(self.members):
            if each.name in self.processes:
                self.kill(number, disk=False)

    def ask(self, number: int, path: str, body: object) -> dict[str, object]:
        """Ask one member as of the majority, in an election again and again."""
        url = f"{self.members[number].client}/v3/{path}"
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                request = urllib.request.Request(url, json.dumps(body).encode())
                with urllib.request.urlopen(request, timeout=10) as answer:
                    found: dict[str, object] = json.load(answer)
                    return found
            except OSError as error:
                if time.monotonic() > until:
                    logs = "\n".join(self.log(each).read_text()[-3000:] for each in range(len(self.members)))
                    raise AssertionError(logs) from error
            time.sleep(0.1)

    def value(self, number: int) -> str | None:
        """Return the value of the key `k` as one member has it, or None."""
        found = self.ask(number, "kv/range", {"key": encoded("k")}).get("kvs", [])
        assert isinstance(found, list)
        return b64decode(found[0]["value"]).decode() if found else None

    def ids(self) -> dict[str, str]:
        """Return the members' ids."""
        found = self.ask(0, "cluster/member/list", {"linearizable": True})["members"]
        assert isinstance(found, list)
        return {each["name"]: each["ID"] for each in found}

    def await_ready(self, *numbers: int) -> list[str | None]:
        """Wait until these members answer. Return what each says of the key."""
        return [self.value(number) for number in numbers]

    def await_said(self, number: int, sentence: str) -> None:
        """Wait until a member has said something."""
        until = time.monotonic() + PATIENCE_SECONDS
        while sentence not in self.log(number).read_text():
            assert time.monotonic() < until, self.log(number).read_text()[-3000:]
            time.sleep(0.1)


def encoded(text: str) -> str:
    return b64encode(text.encode()).decode()


def place(folder: Path, count: int) -> Place:
    ports = [free_port() for _ in range(2 * count)]
    urls = [f"http://127.0.0.1:{port}" for port in ports]
    return Place(folder, [Member(f"etcd-{n}", urls[2 * n], urls[2 * n + 1]) for n in range(count)])


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Place]:
    """Yield three members with a key."""
    made = place(tmp_path, 3)
    try:
        for number in range(3):
            made.begin(number)
        made.await_ready(0, 1, 2)
        made.ask(0, "kv/put", {"key": encoded("k"), "value": encoded("1")})
        yield made
    finally:
        made.close()


def test_a_member_that_has_lost_its_disk_is_replaced_and_gets_what_the_others_know(three: Place) -> None:
    before = three.ids()
    three.kill(2, disk=True)
    three.ask(0, "kv/put", {"key": encoded("k"), "value": encoded("2")})
    three.begin(2)
    assert three.await_ready(2) == ["2"]
    after = three.ids()
    assert after.keys() == before.keys()
    assert [name for name in before if before[name] != after[name]] == ["etcd-2"]
    # With the new one there is a majority again without one of the old ones.
    three.kill(0, disk=False)
    assert three.await_ready(1, 2) == ["2", "2"]
    three.begin(0)
    three.await_ready(0)
    assert three.ids() == after


def test_one_whose_start_was_cut_off_takes_the_place_that_it_has(three: Place) -> None:
    three.kill(1, disk=True)
    cut_off = three.begin(1)
    three.await_said(1, "it joins them")
    three.kill(1, disk=False)
    assert cut_off.returncode
    shutil.rmtree(three.disk(1), ignore_errors=True)
    three.begin(1)
    assert three.await_ready(1) == ["1"]
    assert len(three.ids()) == 3


def test_without_a_majority_it_waits_and_says_so_and_without_any_data_a_new_etcd_begins(three: Place) -> None:
    three.kill(1, 2, disk=True)
    waiting = [three.begin(number) for number in (1, 2)]
    for number in (1, 2):
        three.await_said(number, "has no data, and etcd-0 can't take it back: their etcd has no majority.")
    assert [process.poll() for process in waiting] == [None, None]
    three.kill(0, disk=True)
    three.begin(0)
    assert three.await_ready(0, 1, 2) == [None, None, None]


def test_it_does_not_join_an_etcd_of_another_number_of_members(tmp_path: Path) -> None:
    made = place(tmp_path, 3)
    single = Place(tmp_path, made.members[:1])
    try:
        single.begin(0)
        single.await_ready(0)
        made.begin(1)
        made.await_said(1, "etcd-1 waits for the end of an etcd that etcd-2 has no part in")
        assert single.ids().keys() == {"etcd-0"}
    finally:
        made.close()
        single.close()


@pytest.mark.parametrize(
    ("answers", "stays"),
    [
        ([Seen(uid="b", decided=True), Seen(is_away=True)], False),
        ([Seen(uid="b", decided=True), Seen()], True),
        ([Seen(uid="b"), Seen(is_away=True)], True),
    ],
)
def test_it_stays_until_it_knows_that_the_others_have_decided(
    answers: list[Seen], stays: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, asked = place(tmp_path, 3), list[Member]()
    seen = dict(zip(made.members[1:], answers, strict=True))

    def greeting(other: Member) -> Seen:
        asked.append(other)
        return seen[other]

    monkeypatch.setattr(member, "STAY_SECONDS", 0.2)
    monkeypatch.setattr(member, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(member, "greeting", greeting)
    member.Start(made.members[0], made.members, "a", print)._stay("etcd-0", "a")
    assert (len(asked) > 2) is stays


def test_it_begins_anew_if_the_first_member_is_replaced_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = place(tmp_path, 3)
    monkeypatch.setattr(member, "greeting", lambda other: Seen(uid="another"))
    with pytest.raises(member.Waits, match="begins anew with etcd-0, which was replaced"):
        member.Start(made.members[1], made.members, "b", print)._stay("etcd-0", "a")


def test_a_single_member_begins_and_goes_on(tmp_path: Path) -> None:
    made = place(tmp_path, 1)
    try:
        made.begin(0)
        made.await_ready(0)
        made.ask(0, "kv/put", {"key": encoded("k"), "value": encoded("1")})
        made.kill(0, disk=False)
        made.begin(0)
        assert made.await_ready(0) == ["1"]
        assert "goes on with its data" in made.log(0).read_text()
    finally:
        made.close()


def test_a_pod_too_many_is_no_member(monkeypatch: pytest.MonkeyPatch) -> None:
    given = ["member.py", "--name=etcd-1", "--uid=u", "--options={}", "--config=c", "--member=etcd-0,http://p,http://c"]
    monkeypatch.setattr(sys, "argv", given)
    with pytest.raises(SystemExit, match="etcd-1 is no member: etcd has etcd-0"):
        member.main()


def test_it_ends_with_what_it_waits_for_after_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member, "GIVE_UP_SECONDS", 0.0)
    made, said = place(tmp_path, 3), list[str]()
    with pytest.raises(member.Waits, match="has no data and waits for etcd-1, etcd-2, which can't be reached"):
        member.Start(made.members[0], made.members, "uid", said.append).decide()
    assert said == ["etcd-0 has no data and waits for etcd-1, etcd-2, which can't be reached"]


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        ({}, ""),
        ({"b": Seen(uid="1"), "c": Seen(uid="2")}, ""),
        ({"b": Seen(uid="1"), "c": Seen()}, "waits for c"),
        ({"b": Seen(uid="1"), "c": Seen(lacks_majority=True)}, "c can't take it back"),
    ],
)
def test_it_waits_unless_all_others_are_here_without_data(seen: dict[str, Seen], reason: str) -> None:
    found = member.reason_to_wait(seen)
    assert reason in found
    assert bool(found) == bool(reason)
