"""What a script's process reads from the variables that the job's manifest sets."""

from __future__ import annotations

import pytest
from elasticdl.api.assembly import read
from elasticdl.client.job import manifest
from elasticdl.errors import InputError
from elasticdl.job import JobArgs, Strategy

from tidewater.contract import env

ARGS = JobArgs(job_name="digits", job_command="python3 a.py", distribution_strategy=Strategy.ALLREDUCE)
TOLD = {
    manifest.MASTER_ADDR: "elasticdl-digits-master:50001",
    manifest.JOB_ARGS: ARGS.to_json(),
    env.ETCD: "http://etcd:2379",
    env.WORKER: "elasticdl-digits-worker-3",
}


def test_a_script_finds_its_job_by_the_variables_of_the_manifest() -> None:
    found = read(TOLD)
    assert (found.master, found.args, found.worker) == (
        "elasticdl-digits-master:50001",
        ARGS,
        "elasticdl-digits-worker-3",
    )


@pytest.mark.parametrize("name", [manifest.MASTER_ADDR, manifest.JOB_ARGS, env.ETCD])
def test_a_variable_that_is_missing_is_named(name: str) -> None:
    with pytest.raises(InputError, match=f"{name} is not set"):
        read({**TOLD, name: ""})
