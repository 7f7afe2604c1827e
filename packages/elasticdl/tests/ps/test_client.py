"""A model over several servers, over real connections: pulls, pushes, several workers, restarts."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
import torch
from elasticdl.embedding_init import Table, initial_rows
from elasticdl.errors import ElasticDLError, InputError
from elasticdl.master.servers import Servers
from elasticdl.ps.client import PsClient
from elasticdl.ps.errors import NoModel, PushRefused, SnapshotLost
from elasticdl.ps.model.policy import Policy
from elasticdl.rpc import channels
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.rpc.elasticdl_pb2_grpc import ParameterServerStub
from elasticdl.rpc.tensors import encode
from elasticdl.zoo.optimizers import SGD, Adam

from packages.elasticdl.tests.ps.running import client, quiet, servers

TABLE = Table("item", 3, seed=1, num_ids=1000)
DENSE = {f"layer.{index}.weight": torch.full((4, 2), float(index)) for index in range(8)}


def ones(value: float = 1.0) -> dict[str, torch.Tensor]:
    return {name: torch.full((4, 2), value) for name in DENSE}


@pytest.fixture
def ps() -> Iterator[PsClient]:
    """Yield a client of two servers that hold a model."""
    with servers(2) as addresses, client(addresses) as found:
        found.init_model(DENSE, [TABLE], SGD(lr=1.0), {"mean": torch.zeros(2)})
        yield found


def test_only_newer_values_are_pulled(ps: PsClient) -> None:
    assert ps.version == -1
    assert ps.pull_dense().keys() == {*DENSE, "mean"}
    assert ps.pull_dense() == {}
    ps.push_gradients(1, ones())
    pulled = ps.pull_dense()
    assert all(torch.equal(pulled[name], value - 1) for name, value in DENSE.items())
    assert ps.pull_dense(everything=True).keys() == {*DENSE, "mean"}


def test_rows_come_in_any_order_and_more_than_once(ps: PsClient) -> None:
    ids = torch.tensor([7, 2, 7, 999, 4, 2])
    assert torch.equal(ps.pull_rows("item", ids), initial_rows(TABLE, ids))
    ps.push_gradients(1, {}, {"item": (ids, torch.ones(6, 3))})
    times = torch.tensor([2.0, 2.0, 2.0, 1.0, 1.0, 2.0])[:, None]
    assert torch.allclose(ps.pull_rows("item", ids), initial_rows(TABLE, ids) - times)


def test_no_ids_give_no_rows(ps: PsClient) -> None:
    assert ps.pull_rows("item", torch.empty(0, dtype=torch.int64)).shape == (0, 3)


def test_buffers_are_shared(ps: PsClient) -> None:
    ps.push_gradients(1, {}, buffers={"mean": torch.tensor([1.0, 2.0])})
    assert ps.pull_dense()["mean"].tolist() == [1.0, 2.0]


def test_wrong_gradients_tables_and_ids_are_refused_by_name(ps: PsClient) -> None:
    with pytest.raises(PushRefused, match=r"layer\.3\.weight.* NaN"):
        ps.push_gradients(1, {"layer.3.weight": torch.full((4, 2), torch.nan)})
    with pytest.raises(PushRefused, match="table 'user'"):
        ps.pull_rows("user", torch.tensor([1]))
    with pytest.raises(PushRefused, match="table 'item' has no row 1001"):
        ps.pull_rows("item", torch.tensor([3, 1001]))
    with pytest.raises(PushRefused, match=r"2 ids .* shape \[3, 3\]"):
        ps.push_gradients(1, {}, {"item": (torch.tensor([3, 4]), torch.ones(3, 3))})


def test_a_snapshot_is_pulled_whole_while_training_goes_on() -> None:
    ids = torch.tensor([1, 2, 3])
    with servers(2) as addresses, client(addresses) as ps, Servers(tuple(addresses), 60) as master:
        ps.init_model(DENSE, [TABLE], SGD(lr=1.0))
        ps.push_gradients(1, ones(), {"item": (ids, torch.ones(3, 3))})
        master.take_snapshot(1)
        ps.push_gradients(2, ones(), {"item": (ids, torch.ones(3, 3))})
        ps.pull_dense()
        kept = ps.pull_dense(snapshot=1)
        assert all(torch.equal(kept[name], value - 1) for name, value in DENSE.items())
        assert torch.allclose(ps.pull_rows("item", ids, snapshot=1), initial_rows(TABLE, ids) - 1)
        master.drop_snapshot(1)
        with pytest.raises(SnapshotLost, match="no snapshot of version 1"):
            ps.pull_dense(snapshot=1)


def test_the_whole_model_is_pulled(ps: PsClient) -> None:
    ids = torch.tensor([900, 2, 5])
    ps.push_gradients(1, ones(), {"item": (ids, torch.ones(3, 3))})
    model = ps.pull_model()
    assert model.version == 1
    assert model.dense.keys() == {*DENSE, "mean"}
    assert model.tables["item"].table == TABLE
    assert model.tables["item"].ids.tolist() == [2, 5, 900]
    assert torch.equal(model.tables["item"].rows, ps.pull_rows("item", model.tables["item"].ids))


def test_a_model_of_another_worker_must_be_the_same() -> None:
    with servers(2) as addresses, client(addresses) as first, client(addresses, "w1") as second:
        first.init_model(DENSE, [TABLE], SGD(lr=1.0))
        second.init_model(DENSE, [TABLE], SGD(lr=1.0))
        for dense, tables, optimizer, message in [
            ({**DENSE, "layer.0.weight": torch.ones(3)}, [TABLE], SGD(lr=1.0), r"layer.0.weight has shape \[4, 2\]"),
            ({**DENSE, "layer.9.weight": torch.ones(3)}, [TABLE], SGD(lr=1.0), "doesn't know layer.9.weight"),
            ({"layer.0.weight": torch.zeros(4, 2)}, [TABLE], SGD(lr=1.0), "holds layer.*and the model .* doesn't"),
            (DENSE, [Table("item", 4)], SGD(lr=1.0), "tables differ"),
            (DENSE, [TABLE], Adam(lr=1.0), "optimizers differ"),
        ]:
            with pytest.raises(PushRefused, match=message):
                second.init_model(dense, tables, optimizer)


def test_the_first_model_counts() -> None:
    with servers(2) as addresses, client(addresses) as first, client(addresses, "w1") as second:
        first.init_model(DENSE, [], SGD(lr=1.0))
        second.init_model(ones(9.0), [], SGD(lr=1.0))
        assert all(torch.equal(value, DENSE[name]) for name, value in second.pull_dense().items())


def test_a_server_without_a_model_says_so() -> None:
    with servers(1) as addresses, client(addresses) as ps, pytest.raises(NoModel, match="server 0 has no model yet"):
        ps.pull_dense()


def test_addresses_in_the_wrong_order_are_named() -> None:
    with servers(2) as addresses, client(addresses[::-1]) as ps:
        with pytest.raises(InputError, match="number 0 of 2, is parameter server 1 of 2"):
            ps.init_model(DENSE, [], SGD(lr=1.0))
        with pytest.raises(InputError, match="--ps_addrs is empty"):
            PsClient([])


def test_a_refused_gradient_is_accepted_once_it_is_fresh() -> None:
    policy = Policy(grads_to_wait=2)
    with servers(2, policy) as addresses, client(addresses, "a") as first, client(addresses, "b") as second:
        first.init_model(DENSE, [], SGD(lr=1.0))
        for each in (first, second):
            each.pull_dense()
        assert first.push_gradients(1, ones()) == (True, True)
        assert first.push_gradients(2, ones()) == (True, True)
        assert second.push_gradients(1, ones()) == (False, False)
        second.pull_dense()
        assert second.push_gradients(1, ones()) == (True, True)
        with Servers(tuple(addresses), 60) as master:
            assert master.flush() == 2
        assert torch.equal(first.pull_dense()["layer.7.weight"], torch.full((4, 2), 5.0))


def test_pushes_of_four_clients_at_once_lose_nothing() -> None:
    pushes, ids = 20, torch.arange(6)
    with servers(3) as addresses, ExitStack() as stack:
        workers = [stack.enter_context(client(addresses, f"worker-{index}")) for index in range(4)]
        for worker in workers:
            worker.init_model(DENSE, [TABLE], SGD(lr=1.0))

        def push(worker: PsClient) -> None:
            for number in range(pushes):
                worker.pull_dense()
                assert all(worker.push_gradients(number, ones(), {"item": (ids, torch.full((6, 3), 0.5))}))

        threads = [threading.Thread(target=push, args=(worker,)) for worker in workers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        trained = workers[0].pull_dense(everything=True)
        rows = workers[0].pull_rows("item", ids)
        assert workers[0].version == 80
    for name, value in DENSE.items():
        assert torch.equal(trained[name], value - 4 * pushes)
    assert torch.allclose(rows, initial_rows(TABLE, ids) - 2 * pushes, atol=1e-3)


@pytest.mark.parametrize(("policy", "accepted"), [(Policy(grads_to_wait=2), False), (Policy(use_async=True), True)])
def test_a_gradient_by_values_from_before_a_restart_is_of_no_version_of_today(policy: Policy, accepted: bool) -> None:
    with ExitStack() as stack:
        addresses = stack.enter_context(servers(1, policy))
        ps = stack.enter_context(client(addresses))
        ps.init_model({"a": torch.zeros(2)}, [], SGD(lr=1.0))
        stub = ParameterServerStub(stack.enter_context(channels.connect(addresses[0])))
        message = pb.Gradients(worker="w", process="p", minibatch=1, dense={"a": encode(torch.ones(2))}, server="gone")
        assert stub.PushGradients(message).accepted is accepted
        message.server = stub.GetState(pb.Nothing()).process
        assert stub.PushGradients(message).accepted


def test_a_server_that_stays_away_is_an_error_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    # A call can reach a server of this process while it stops: that one is never answered, but its connection stays.
    monkeypatch.setattr("elasticdl.ps.client.MODEL_SECONDS", 5.0)
    with ExitStack() as stack:
        with servers(1) as addresses:
            ps = stack.enter_context(PsClient(addresses, patience_seconds=0.5, say=quiet))
            ps.init_model(DENSE, [], SGD(lr=1.0))
        with pytest.raises(ElasticDLError, match="parameter server 0 has not answered"):
            ps.pull_dense()


def test_gradients_that_exceed_one_message_are_refused_before_anything_is_sent() -> None:
    layers = {f"layer{number}": torch.empty(1 << 28, device="meta") for number in range(5)}  # 1 GiB each
    with servers(2) as addresses, client(addresses) as ps:
        with pytest.raises(InputError, match=r"of parameter server [01] take [345].0 GiB") as caught:
            ps.init_model(layers, [], SGD(lr=1.0))
        assert "--num_ps_pods" in caught.value.remedy
