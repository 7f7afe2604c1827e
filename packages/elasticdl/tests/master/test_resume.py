"""From the flags to the first state: wrong input is named before anything is made."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from elasticdl.errors import InputError
from elasticdl.job import JobMode, Strategy
from elasticdl.master.program import Place, main, run
from elasticdl.master.resume import prepared, resumed
from elasticdl.master.tasks import transitions

from packages.elasticdl.tests.master.jobs import ZOO, write_job
from tests.elastic.workers import free_port

SERVERS = {"distribution_strategy": Strategy.PARAMETER_SERVER, "num_ps_pods": 2}


def test_a_job_of_the_zoo_has_its_plans_and_rules(tmp_path: Path) -> None:
    changes = {"num_epochs": 3, "validation_data": str(tmp_path / "test.csv"), "output": "/out", "max_step": 70}
    job = prepared(write_job(tmp_path, checkpoint_steps=5, checkpoint_dir="/c", **changes, **SERVERS), servers=2)
    assert job.plans.work is not None
    assert len(job.plans.work.tasks) == 30
    rules = job.setup.rules
    assert (rules.servers, rules.evaluation_tasks, rules.checkpoint_steps, rules.max_step) == (2, 3, 5, 70)
    assert rules.exports


def test_the_lower_one_of_max_step_and_the_models_own_counts(tmp_path: Path) -> None:
    args = write_job(tmp_path, max_step=70)
    (tmp_path / "zoo" / "small.py").write_text(
        f"{ZOO}\n\ndef callbacks():\n    from elasticdl.zoo.callbacks import MaxSteps\n\n    return [MaxSteps(20)]\n"
    )
    assert prepared(args, 0).setup.rules.max_step == 20


@pytest.mark.parametrize(("mode", "output"), [(JobMode.EVALUATE, ""), (JobMode.PREDICT, "/predictions")])
def test_a_model_that_is_not_trained_may_have_had_as_many_updates_before(
    tmp_path: Path, mode: JobMode, output: str
) -> None:
    data = str(tmp_path / "test.csv")
    args = write_job(tmp_path, mode=mode, max_step=1, checkpoint_dir_for_init="/c", output=output)
    job = prepared(dataclasses.replace(args, validation_data=data, prediction_data=data), 0)
    state, _ = resumed(None, job)
    assert not transitions.reached(state, job.setup.rules, 5).stopped


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"training_data": ""}, "--training_data is missing"),
        ({"training_data": "{folder}/nowhere"}, "nowhere"),
        ({"training_data": "{folder}/empty.csv"}, "empty.csv has no rows"),
        ({"validation_data": "{folder}/empty.csv"}, "empty.csv has no rows"),
        ({"validation_data": "{folder}/nowhere.csv"}, "nowhere.csv"),
        ({"model_def": "small.missing"}, "missing"),
        ({"model_def": "absent.custom_model"}, "absent"),
        ({"eval_metrics_fn": "no_metrics"}, "no_metrics"),
        ({"data_reader_params": "reader_type=Papyrus"}, "Papyrus"),
        ({**SERVERS, "num_ps_pods": 3}, "--ps_addrs has 2 addresses, and --num_ps_pods is 3"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_wrong_input_is_named_before_anything_is_made(tmp_path: Path, changes: dict[str, Any], named: str) -> None:
    (tmp_path / "empty.csv").write_text("a,b,label\n")
    filled = {key: value.format(folder=tmp_path) if isinstance(value, str) else value for key, value in changes.items()}
    args = write_job(tmp_path, **filled)
    with pytest.raises(InputError) as caught:
        run(args, Place(f"127.0.0.1:{free_port()}", "master", ("a:1", "b:1")), Untouchable())
    assert named in str(caught.value)


class Untouchable:
    """A client of etcd that must not be used."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"etcd was asked: {name}")


def test_the_process_ends_with_the_code_for_wrong_input(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    args = dataclasses.replace(write_job(tmp_path), minibatch_size=0)
    assert main(["--job", "small", "--job_args", args.to_json()]) == 2
    assert main(["--job", "small", "--job_args", "{}"]) == 2
    args = write_job(tmp_path)
    assert main(["--job", "small", "--job_args", args.to_json(), "--etcd", "ftp://etcd"]) == 2
    assert "ftp://etcd" in capfd.readouterr().out


@pytest.mark.parametrize("changes", [{"minibatch_size": 4}, {"seed": 1}, {"num_epochs": 2}], ids=str)
def test_a_master_that_finds_other_tasks_than_before_does_not_go_on(tmp_path: Path, changes: dict[str, Any]) -> None:
    state, _ = resumed(None, prepared(write_job(tmp_path), 0))
    with pytest.raises(InputError, match="have changed since this job was begun"):
        resumed(state.to_fields(), prepared(write_job(tmp_path, **changes), 0))


def test_a_master_that_finds_other_data_than_before_does_not_go_on(tmp_path: Path) -> None:
    args = write_job(tmp_path)
    state, _ = resumed(None, prepared(args, 0))
    with Path(args.training_data).open("a") as file:
        file.write("1.0,1.0,1\n")
    with pytest.raises(InputError, match="have changed since this job was begun"):
        resumed(state.to_fields(), prepared(args, 0))


def test_evaluation_alone_has_no_tasks_but_those_of_the_evaluation(tmp_path: Path) -> None:
    data = str(tmp_path / "test.csv")
    args = write_job(tmp_path, mode=JobMode.EVALUATE, validation_data=data, checkpoint_dir_for_init="/c")
    job = prepared(args, 0)
    state, _ = resumed(None, job)
    settled = transitions.settle(state, job.setup.rules)
    assert settled.evaluation is not None
    assert settled.work.done == 0
