"""The processes that divide a model find each other, and one that waits for another says so."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore, HashStore, PrefixStore
from torch.distributed import device_mesh

from tests.elastic.workers import SECRET
from tidewater.elastic.errors import TrainerError
from tidewater.elastic.group import mesh
from tidewater.elastic.launch.nodes.link import Gate, Mailbox
from tidewater.elastic.peer.handshake import Identity


def test_processes_go_on_when_all_have_come() -> None:
    store = HashStore()
    others = [threading.Thread(target=mesh.meet, args=[store, "here", (index, 3), "a", 20.0]) for index in (1, 2)]
    for other in others:
        other.start()
    mesh.meet(store, "here", (0, 3), "a", 20.0)
    for other in others:
        other.join()


def test_a_process_says_which_others_it_waits_for_and_ends_at_last(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = HashStore()
    store.set("config.mesh 0", "")
    monkeypatch.setattr(mesh, "_SAY_SECONDS", 0.0)
    with pytest.raises(TrainerError, match=r"a\.2, a\.3 did not come to config\.mesh in 0\.2 s, where a\.1 has waited"):
        mesh.meet(store, "config.mesh", (1, 4), "a", 0.2)
    line, *_ = capsys.readouterr().out.splitlines()
    assert line.startswith('event=waiting reason=processes waits_for="a.2, a.3" place=config.mesh worker=a.1')


@pytest.mark.parametrize(
    ("host", "before", "interface"),
    [
        pytest.param("", None, "lo", id="on one machine"),
        pytest.param("", "eth7", "lo", id="on one machine that names another one"),
        pytest.param("127.0.0.1", None, "lo", id="that of the address"),
        pytest.param("127.0.0.1", "eth7", "eth7", id="the one that the environment names"),
        pytest.param("192.0.2.1", None, None, id="gloo's own, for an address that no interface has"),
    ],
)
def test_the_processes_use_the_interface_on_which_they_reach_each_other(
    host: str, before: str | None, interface: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[Any] = []

    def make(*_: Any, **__: Any) -> None:
        used.append(os.environ.get("GLOO_SOCKET_IFNAME"))

    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    if before:
        monkeypatch.setenv("GLOO_SOCKET_IFNAME", before)
    monkeypatch.setattr(dist, "init_process_group", make)
    monkeypatch.setattr(device_mesh, "init_device_mesh", lambda *_: "mesh")
    monkeypatch.setattr(mesh, "atexit", SimpleNamespace(register=lambda call: None))
    found: Any = mesh.mesh_of.__wrapped__("", (0, 1), "a", host)
    assert found == "mesh"
    assert used == [interface]
    assert os.environ.get("GLOO_SOCKET_IFNAME") == before


def test_a_further_sum_has_one_thread_and_no_device_of_its_own() -> None:
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    try:
        before = len(os.listdir("/proc/self/task"))
        sum_up, values = mesh.further_sum((0, 1), "a"), torch.ones(3)
        sum_up(values)
        assert values.tolist() == [1, 1, 1]
        assert len(os.listdir("/proc/self/task")) == before + 1
    finally:
        dist.destroy_process_group()


def test_processes_meet_at_a_file(tmp_path: Path) -> None:
    stores = [FileStore(str(tmp_path / "here"), 2) for _ in range(2)]
    other = threading.Thread(target=mesh.meet, args=[stores[1], "config.mesh", (1, 2), "a", 20.0])
    other.start()
    mesh.meet(stores[0], "config.mesh", (0, 2), "a", 20.0)
    other.join()


@pytest.fixture
def meeting() -> Iterator[str]:
    """Return the place that a launcher serves."""
    gate = Gate(Identity(SECRET, "first"), "127.0.0.1", Mailbox())
    yield str(gate.place._replace(number=7))
    gate.close()


def test_processes_of_several_machines_meet_in_a_launcher(meeting: str) -> None:
    stores = [mesh._store.__wrapped__(meeting, 2) for _ in range(2)]
    other = threading.Thread(target=mesh.meet, args=[stores[1], "config.mesh", (1, 2), "a", 20.0])
    other.start()
    mesh.meet(stores[0], "config.mesh", (0, 2), "a", 20.0)
    other.join()


def test_the_store_stays_with_torch_for_the_meetings_that_follow(meeting: str) -> None:
    store = PrefixStore("default_pg", mesh._store(meeting, 1))
    gc.collect()
    mesh.meet(store, "the end of the script's loop", (0, 1), "a", 20.0)
