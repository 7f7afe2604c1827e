"""The launchers of a worker find each other by etcd, and wait as long as it doesn't answer."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.elastic.etcd.fake_client import FakeStore
from tests.elastic.workers import SECRET
from tests.processes import eventually
from tidewater.contract import env, exit_codes, keys
from tidewater.elastic.config import Config
from tidewater.elastic.errors import ConfigError, RecordError, Refused, StoreError
from tidewater.elastic.etcd import codec
from tidewater.elastic.launch.nodes import lookup
from tidewater.elastic.launch.nodes.link import Gate, Link, Mailbox
from tidewater.elastic.launch.nodes.lookup import Lookup, calling, publishing
from tidewater.elastic.launch.nodes.messages import End, Hello
from tidewater.elastic.observe.log import Log

KEY = keys.launcher("digits", "a-0")


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> FakeStore:
    """Return the etcd of all launchers."""
    store = FakeStore(lambda: 0.0)
    monkeypatch.setattr(lookup, "EtcdStore", lambda *_, **__: store)
    monkeypatch.setattr(lookup, "_PAUSE_SECONDS", 0.01)
    return store


class Launcher:
    """What a launcher has of it."""

    def __init__(self, node: int, secret: str = "") -> None:
        given = ["--job=digits", "--etcd=http://127.0.0.1:1", "--checkpoints=/here", "--host=127.0.0.1", "--shard=2"]
        given += ["--shard-nodes=2", f"--shard-node={node}", "--replica=a-0"]
        self.config = Config.parse(given, {env.SECRET: secret, env.WORKER: f"a-{node}"})
        self.mailbox, self.stream, self._items = Mailbox(), io.StringIO(), list[Any]()
        hello = Hello(node, 2, 2, f"a-{node}", 0)
        look = calling(self.config, lambda: hello) if node else publishing(self.config, self.mailbox)
        self.lookup = Lookup(self.config, look, self.mailbox, Log(f"a-{node}", stream=self.stream))

    def found(self) -> Any:
        """Return what it finds next."""
        self._items += [] if self._items else eventually(self.mailbox.take)
        return self._items.pop(0)


@pytest.fixture
def gate(store: FakeStore) -> Iterator[tuple[Launcher, Gate]]:
    """Return the launcher of the first machine, and its gate."""
    first = Launcher(0)
    first.lookup.want(True)
    gate = first.found()
    assert isinstance(gate, Gate)
    yield first, gate
    gate.close()


def test_a_further_machine_finds_the_first_one_and_both_have_the_jobs_secret(gate: tuple[Launcher, Gate]) -> None:
    further = Launcher(1)
    further.lookup.want(True)
    assert isinstance(further.found(), Link)
    hello, link = gate[0].found()
    assert (hello.name, hello.machine) == ("a-1", 1)
    assert isinstance(link, Link)


def test_a_secret_that_is_given_is_used(store: FakeStore) -> None:
    first = Launcher(0, secret=SECRET.decode())
    first.lookup.want(True)
    gate = first.found()
    assert gate.place.secret == SECRET
    gate.close()
    assert store.read(keys.secret("digits")).entries == ()


def test_etcd_is_left_alone_while_machines_are_not_wanted(store: FakeStore) -> None:
    first = Launcher(0)
    reads: list[str] = []
    read, asked = store.read, threading.Event()

    def noted(prefix: str) -> Any:
        reads.append(prefix)
        asked.set()
        return read(prefix)

    store.read = noted  # type: ignore[method-assign]
    assert not asked.wait(0.1)
    first.lookup.want(True)
    first.found().close()
    first.lookup.want(False)
    count = len(reads)
    assert not first.mailbox.take()
    assert len(reads) == count


def test_a_first_machine_that_could_not_write_its_address_opens_no_second_gate(
    store: FakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, put, failures = Launcher(0), store.put, [3]

    def fail(key: str, value: bytes, lease: int = 0) -> None:
        failures[0] -= 1
        if failures[0] >= 0:
            raise StoreError("etcd does not answer")
        put(key, value, lease)

    opened: list[Gate] = []

    def opens(*given: Any) -> Gate:
        opened.append(Gate(*given))
        return opened[-1]

    monkeypatch.setattr(store, "put", fail)
    monkeypatch.setattr(lookup, "Gate", opens)
    first.lookup.want(True)
    assert [first.found()] == opened
    opened[0].close()


def test_an_etcd_that_does_not_answer_is_waited_for_and_said(store: FakeStore) -> None:
    store.away = True
    first = Launcher(0)
    first.lookup.want(True)
    eventually(lambda: "etcd_unreachable" in first.stream.getvalue())
    assert first.mailbox.take() == []
    store.away = False
    first.found().close()


def test_a_machine_waits_for_an_address_and_says_why_it_is_not_connected(store: FakeStore) -> None:
    further = Launcher(1)
    further.lookup.want(True)
    eventually(lambda: further.lookup.trouble == "it has not written its address to etcd")
    first = Launcher(0)
    first.lookup.want(True)
    gate = first.found()
    assert isinstance(further.found(), Link)
    assert further.lookup.trouble == ""
    gate.close()


def test_the_address_is_written_again_if_etcd_has_lost_it(store: FakeStore, gate: tuple[Launcher, Gate]) -> None:
    before = store.read(KEY).entries[0].value
    store.delete(KEY)
    gate[0].lookup.want(True)
    eventually(lambda: store.read(KEY).entries)
    assert store.read(KEY).entries[0].value == before


@pytest.mark.parametrize("node", [0, 1])
def test_a_machine_writes_the_secret_again_if_etcd_has_lost_it_and_ends_if_there_is_another_one(
    node: int, store: FakeStore
) -> None:
    (first, further), key = [Launcher(0), Launcher(1)], keys.secret("digits")
    one, other = (further, first) if node else (first, further)
    one.lookup.want(True)
    gate = None if node else first.found()
    before = eventually(lambda: store.read(key).entries)[0].value
    store.delete(key)
    one.lookup.want(True)
    assert eventually(lambda: store.read(key).entries)[0].value == before
    store.put(key, codec.encode({"secret": "00" * 32}, version=keys.SECRET_VERSION))
    one.lookup.want(True)
    assert "etcd has lost the job's data and has a new secret" in str(one.found())
    other.lookup.want(False)
    if gate:
        gate.close()


def test_the_last_first_machine_counts_and_another_one_when_that_is_gone(
    store: FakeStore, gate: tuple[Launcher, Gate]
) -> None:
    first, before = gate[0], store.read(KEY).entries[0].value
    second = Launcher(0)
    second.lookup.want(True)
    other = second.found()
    first.lookup.want(True)
    eventually(lambda: first.lookup.trouble == f"the launcher at {other.place.address} has --shard-node 0, too")
    assert store.read(KEY).entries[0].value != before
    other.close()
    eventually(lambda: store.read(KEY).entries[0].value == before)
    eventually(lambda: not first.lookup.trouble)


@pytest.mark.parametrize("node", [0, 1])
def test_machines_that_wait_end_when_the_job_has_finished(node: int, store: FakeStore) -> None:
    store.put(keys.finished("digits"), b"{}")
    launcher = Launcher(node)
    launcher.lookup.want(True)
    assert launcher.found() == End(exit_codes.FINISHED)


def test_a_wrong_address_of_etcd_is_refused() -> None:
    config = replace(Launcher(0).config, etcd=("http://[::1",))
    mailbox = Mailbox()
    with pytest.raises(ConfigError, match="is not a URL like"):
        Lookup(config, publishing(config, mailbox), mailbox, Log("a-0"))


def test_an_error_that_nothing_expects_ends_the_launcher(store: FakeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(prefix: str) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(store, "read", fail)
    further = Launcher(1)
    further.lookup.want(True)
    assert isinstance(further.found(), ZeroDivisionError)


def test_what_no_retry_helps_ends_the_launcher(store: FakeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put(KEY, b'{"version": 7}')
    further = Launcher(1)
    further.lookup.want(True)
    assert isinstance(further.found(), RecordError)

    def refuse(prefix: str) -> None:
        raise Refused("etcd refuses /v3/kv/range (user or password is wrong)")

    monkeypatch.setattr(store, "read", refuse)
    first = Launcher(0)
    first.lookup.want(True)
    error = first.found()
    assert isinstance(error, ConfigError)
    assert "user or password is wrong). See --etcd" in str(error)
