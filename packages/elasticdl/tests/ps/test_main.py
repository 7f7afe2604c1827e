"""A server's command line, as the manifests use it."""

from __future__ import annotations

import dataclasses
import importlib
import signal
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch
from elasticdl.embedding_init import Table
from elasticdl.errors import InputError
from elasticdl.job import JobArgs, JobMode
from elasticdl.master.servers import Servers
from elasticdl.ps.checkpoint import newest
from elasticdl.zoo.optimizers import SGD

from packages.elasticdl.tests.ps.running import Process, client, quiet, servers
from packages.elasticdl.tests.ps.test_reporter import Master
from packages.elasticdl.tests.ps.test_reporter import serve as serve_master
from tidewater.contract.exit_codes import LEFT, USAGE

main = importlib.import_module("elasticdl.ps.__main__")

DENSE = {"a": torch.zeros(2), "b": torch.zeros(3)}


def save(addresses: Sequence[str], folder: Path, args: JobArgs) -> None:
    """Let the servers write version 1 as a checkpoint of the job's run."""
    with Servers(tuple(addresses), 60) as master:
        master.save(str(folder), 1, args.run)


def test_server_0_tells_the_master_its_versions_and_leaves_after_sigterm(tmp_path: Path) -> None:
    master = Master()
    server, port = serve_master(master)
    args = JobArgs(job_name="digits", run_id="1", checkpoint_dir=str(tmp_path))
    with Process(0, 1, args, master=f"127.0.0.1:{port}") as process:
        assert "no model yet" in process.beginning
        with client([process.address]) as ps:
            ps.init_model(DENSE, [], SGD(lr=1.0))
            master.wait_for(0)
            ps.push_gradients(1, {"a": torch.ones(2)})
            master.wait_for(1)
            save([process.address], tmp_path, args)
        assert process.end(signal.SIGTERM) == LEFT
    master.told.clear()
    with Process(0, 1, args, master=f"127.0.0.1:{port}") as again:
        assert "version 1" in again.beginning
        master.wait_for(1)
    server.stop(0).wait()


def test_two_servers_come_back_as_three_of_the_same_run_and_a_new_run_begins_anew(tmp_path: Path) -> None:
    args = JobArgs(job_name="digits", run_id="1", checkpoint_dir=str(tmp_path))
    with servers(2) as addresses, client(addresses) as ps:
        ps.init_model(DENSE, [], SGD(lr=1.0))
        ps.push_gradients(1, {"a": torch.ones(2), "b": torch.ones(3)})
        save(addresses, tmp_path, args)
    with servers(3, args=args) as addresses, client(addresses) as ps:
        assert {name: value.tolist() for name, value in ps.pull_dense().items()} == {"a": [-1.0] * 2, "b": [-1.0] * 3}
        assert ps.version == 1
    assert main.beginning(dataclasses.replace(args, run_id="2"), (0, 3), quiet) == (None, None)
    other = JobArgs(job_name="other", checkpoint_dir_for_init=str(tmp_path))
    with servers(1, args=other) as addresses, client(addresses) as ps:
        ps.init_model(DENSE, [], SGD(lr=1.0))
        assert ps.pull_dense()["b"].tolist() == [-1.0] * 3
        assert ps.version == 0


def test_a_server_that_lost_its_part_gets_the_trained_values_and_the_rows_of_the_first_checkpoint(
    tmp_path: Path,
) -> None:
    first = JobArgs(job_name="first")
    table, ids = Table("item", 2), torch.arange(4)
    with servers(1) as addresses, client(addresses) as ps:
        ps.init_model(DENSE, [table], SGD(lr=1.0))
        ps.push_gradients(1, {"a": torch.ones(2)}, {"item": (ids, torch.ones(4, 2))})
        save(addresses, tmp_path, first)
        rows = ps.pull_rows("item", ids)
    args = JobArgs(job_name="second", checkpoint_dir_for_init=str(tmp_path))
    with ExitStack() as stack:
        with servers(1, args=args) as addresses:
            ps = stack.enter_context(client(addresses))
            module = {name: value.clone() for name, value in DENSE.items()}
            ps.init_model(module, [table], SGD(lr=1.0))
            ps.push_gradients(1, {"a": torch.ones(2)})
            module.update(ps.pull_dense())
        stack.enter_context(servers(1, args=args, port=int(addresses[0].rpartition(":")[2])))
        assert ps.pull_dense()["a"].tolist() == [-2.0] * 2
        assert torch.equal(ps.pull_rows("item", ids), rows)
        assert ps.version == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--index", "2", "--servers", "2"], "--index is 2 with --servers=2"),
        (["--index", "0", "--servers", "1", "--job_args", "{"], "--job_args"),
    ],
    ids=["index", "job_args"],
)
def test_wrong_input_is_named_and_is_no_reason_to_restart(
    arguments: list[str], message: str, caplog: pytest.LogCaptureFixture
) -> None:
    defaults = ["--job", "digits", "--port", "0", "--job_args", JobArgs(job_name="digits").to_json()]
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        assert main.main([*defaults, *arguments]) == USAGE
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert message in caplog.text


def test_a_model_that_is_evaluated_has_the_checkpoints_version(tmp_path: Path) -> None:
    first = JobArgs(job_name="first")
    with servers(1) as addresses, client(addresses) as ps:
        ps.init_model(DENSE, [], SGD(lr=1.0))
        ps.push_gradients(1, {"a": torch.ones(2)})
        save(addresses, tmp_path, first)
    args = JobArgs(job_name="second", mode=JobMode.EVALUATE, checkpoint_dir_for_init=str(tmp_path))
    with servers(1, args=args) as addresses, client(addresses) as ps:
        ps.init_model(DENSE, [], SGD(lr=1.0))
        assert ps.pull_dense()["a"].tolist() == [-1.0] * 2
        assert ps.version == 1


def test_a_checkpoint_for_init_that_is_not_there_is_named(tmp_path: Path) -> None:
    args = JobArgs(job_name="digits", checkpoint_dir_for_init=str(tmp_path / "absent"))
    with pytest.raises(InputError, match="absent has no checkpoint that is whole"):
        main.beginning(args, (0, 1), quiet)
    assert newest(str(tmp_path / "absent")) is None
