"""A server's command line, as the manifests use it."""

from __future__ import annotations

import importlib
import signal
from pathlib import Path

import pytest
import torch
from elasticdl.embedding_init import Table
from elasticdl.errors import InputError
from elasticdl.job import JobArgs, JobMode
from elasticdl.master.servers import Servers
from elasticdl.ps.checkpoint import newest
from elasticdl.zoo.optimizers import SGD

from packages.elasticdl.tests.ps.running import Process, client
from packages.elasticdl.tests.ps.test_reporter import Master
from packages.elasticdl.tests.ps.test_reporter import serve as serve_master
from tidewater.contract.exit_codes import LEFT, USAGE

main = importlib.import_module("elasticdl.ps.__main__")

DENSE = {"a": torch.zeros(2), "b": torch.zeros(3)}


def test_server_0_tells_the_master_its_versions_and_leaves_after_sigterm() -> None:
    master = Master()
    server, port = serve_master(master)
    with Process(0, 1, JobArgs(job_name="digits"), master=f"127.0.0.1:{port}") as process:
        with client([process.address]) as ps:
            ps.init_model(DENSE, [], SGD(lr=1.0))
            master.wait_for(0)
            ps.push_gradients(1, {"a": torch.ones(2)})
            master.wait_for(1)
        assert process.end(signal.SIGTERM) == LEFT
    server.stop(0).wait()


def test_two_servers_come_back_as_three_of_the_same_run_and_a_new_run_begins_anew(tmp_path: Path) -> None:
    args = JobArgs(job_name="digits", run_id="1", checkpoint_dir=str(tmp_path))
    with Process(0, 2, args) as first, Process(1, 2, args) as second, client([first.address, second.address]) as ps:
        ps.init_model(DENSE, [], SGD(lr=1.0))
        ps.push_gradients(1, {"a": torch.ones(2), "b": torch.ones(3)})
        with Servers((first.address, second.address), 60) as master:
            master.save(str(tmp_path), 1, args.run)
    with Process(0, 3, args) as again:
        assert "version 1" in again.beginning
    with Process(0, 3, JobArgs(job_name="digits", run_id="2", checkpoint_dir=str(tmp_path))) as fresh:
        assert "no model yet" in fresh.beginning
    other = JobArgs(job_name="other", checkpoint_dir_for_init=str(tmp_path))
    with Process(0, 1, other) as begun, client([begun.address]) as ps:
        ps.init_model(DENSE, [], SGD(lr=1.0))
        assert ps.pull_dense()["b"].tolist() == [-1.0] * 3
        assert ps.version == 0


def test_a_server_that_lost_its_part_gets_the_trained_values_and_the_rows_of_the_first_checkpoint(
    tmp_path: Path,
) -> None:
    first = JobArgs(job_name="first")
    table, ids = Table("item", 2), torch.arange(4)
    with Process(0, 1, first) as process, client([process.address]) as ps:
        ps.init_model(DENSE, [table], SGD(lr=1.0))
        ps.push_gradients(1, {"a": torch.ones(2)}, {"item": (ids, torch.ones(4, 2))})
        with Servers((process.address,), 60) as master:
            master.save(str(tmp_path), 1, first.run)
        rows = ps.pull_rows("item", ids)
    args = JobArgs(job_name="second", checkpoint_dir_for_init=str(tmp_path))
    with Process(0, 1, args) as process, client([process.address]) as ps:
        module = {name: value.clone() for name, value in DENSE.items()}
        ps.init_model(module, [table], SGD(lr=1.0))
        ps.push_gradients(1, {"a": torch.ones(2)})
        module.update(ps.pull_dense())
        process.end(signal.SIGKILL)
        with Process(0, 1, args, port=process.port):
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
    with Process(0, 1, first) as process, client([process.address]) as ps:
        ps.init_model(DENSE, [], SGD(lr=1.0))
        ps.push_gradients(1, {"a": torch.ones(2)})
        with Servers((process.address,), 60) as master:
            master.save(str(tmp_path), 1, first.run)
    args = JobArgs(job_name="second", mode=JobMode.EVALUATE, checkpoint_dir_for_init=str(tmp_path))
    with Process(0, 1, args) as process, client([process.address]) as ps:
        ps.init_model(DENSE, [], SGD(lr=1.0))
        assert ps.pull_dense()["a"].tolist() == [-1.0] * 2
        assert ps.version == 1


def test_a_checkpoint_for_init_that_is_not_there_is_named(tmp_path: Path) -> None:
    args = JobArgs(job_name="digits", checkpoint_dir_for_init=str(tmp_path / "absent"))
    with pytest.raises(InputError, match="absent has no checkpoint that is whole"):
        main.beginning(args, (0, 1), lambda text: None)
    assert newest(str(tmp_path / "absent")) is None
