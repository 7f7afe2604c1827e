"""Whether a model's functions are in the zoo is found without running its module."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from elasticdl.client.job import models
from elasticdl.job import JobArgs, JobMode
from elasticdl.zoo import project

from packages.elasticdl.tests.client import seed


@pytest.fixture
def args(tmp_path: Path) -> JobArgs:
    """The arguments of the tutorial's command, with its zoo."""
    return replace(seed.asked().args, model_zoo=seed.zoo(tmp_path))


def module(args: JobArgs) -> Path:
    return Path(args.model_zoo, "mnist", "mnist_functional_api.py")


def messages(args: JobArgs) -> list[str]:
    found = models.mistakes(args)
    assert all(each.remedy for each in found)
    return [each.message for each in found]


def test_a_whole_model_is_accepted(args: JobArgs) -> None:
    assert messages(args) == []


@pytest.mark.parametrize(
    "model_def", ["mnist.mnist_functional_api.custom_model", "recommender.wide_and_deep.custom_model"]
)
def test_the_examples_of_zoo_init_are_accepted(tmp_path: Path, args: JobArgs, model_def: str) -> None:
    project.init(tmp_path / "zoo", project.InitOptions())
    assert messages(replace(args, model_zoo=str(tmp_path / "zoo"), model_def=model_def)) == []


def test_a_zoo_that_is_not_there_is_named(args: JobArgs) -> None:
    assert messages(replace(args, model_zoo="/no/zoo")) == ["--model_zoo=/no/zoo does not exist"]
    file = str(module(args))
    assert messages(replace(args, model_zoo=file)) == [f"--model_zoo={file} is no folder"]


def test_a_module_that_is_not_there_is_named_beside_those_that_are(args: JobArgs) -> None:
    (found,) = models.mistakes(replace(args, model_def="mnist.other.custom_model"))
    assert found.message.startswith("--model_def=mnist.other.custom_model: there is no ")
    assert "mnist.mnist_functional_api" in found.remedy


@pytest.mark.parametrize("model_def", ["custom_model", "mnist/api.py", "mnist..api", "a.b-c.d"])
def test_what_names_no_function_is_refused(args: JobArgs, model_def: str) -> None:
    assert messages(replace(args, model_def=model_def)) == [f"--model_def={model_def} names no function of a module"]


def test_every_missing_function_is_named_with_its_flag(args: JobArgs) -> None:
    module(args).write_text("def custom_mode(): ...\ndef feed(): ...\n")
    found = models.mistakes(args)
    assert [each.message.split(" has no ")[1] for each in found] == [
        "custom_model",
        "loss",
        "optimizer",
        "eval_metrics_fn",
    ]
    assert found[0].remedy == "did you mean custom_mode? define it, or name another one with --model_def"
    assert "--optimizer" in found[2].remedy


def test_functions_may_have_other_names(args: JobArgs) -> None:
    module(args).write_text(module(args).read_text().replace("def loss", "def my_loss"))
    assert messages(replace(args, loss="my_loss")) == []


@pytest.mark.parametrize(
    ("mode", "needed"),
    [
        (JobMode.EVALUATE, ["custom_model", "feed", "eval_metrics_fn"]),
        (JobMode.PREDICT, ["custom_model", "feed"]),
    ],
)
def test_a_command_needs_only_what_it_uses(args: JobArgs, mode: JobMode, needed: list[str]) -> None:
    module(args).write_text("")
    found = messages(replace(args, mode=mode, evaluation_steps=0, output="/out"))
    assert [each.split(" has no ")[1] for each in found] == needed


def test_training_needs_metrics_only_to_evaluate(args: JobArgs) -> None:
    module(args).write_text("custom_model = loss = optimizer = feed = print")
    assert messages(replace(args, validation_data="", evaluation_steps=0)) == []
    assert messages(replace(args, evaluation_steps=0)) == [f"{module(args)} has no eval_metrics_fn"]
    named = replace(args, validation_data="", evaluation_steps=0, eval_metrics_fn="mine", callbacks="my_callbacks")
    assert {each.split(" has no ")[1] for each in messages(named)} == {"mine", "my_callbacks"}


def test_a_function_may_be_in_another_module(args: JobArgs) -> None:
    losses = Path(args.model_zoo, "common", "losses.py")
    losses.parent.mkdir()
    losses.write_text("def focal(labels, predictions): ...\n")
    module(args).write_text("custom_model = feed = eval_metrics_fn = print")
    dotted = replace(args, loss="common.losses.focal", optimizer="common.losses.focal")
    assert messages(dotted) == []
    assert messages(replace(dotted, loss="common.losses.foca")) == [f"{losses} has no foca"]
    (missing,) = messages(replace(dotted, loss="common.no.focal"))
    assert missing.startswith("--loss=common.no.focal: there is no ")


BASE = "from elasticdl.zoo.spec import PredictionOutputsProcessor\n"


@pytest.mark.parametrize(
    ("text", "output", "said"),
    [
        pytest.param("", "/out", "", id="a-folder"),
        pytest.param(BASE, "/out", "", id="the-base-alone-is-none"),
        pytest.param(BASE, "", "--output is missing, and the model has no PredictionOutputsProcessor", id="neither"),
        pytest.param("class PredictionOutputsProcessor: ...", "", "", id="a-processor"),
        pytest.param(
            "class PredictionOutputsProcessor: ...",
            "/out",
            "--output is /out, and the model's PredictionOutputsProcessor takes the predictions",
            id="both",
        ),
        pytest.param("from other import *", "", "", id="nobody-can-tell"),
    ],
)
def test_predictions_go_to_a_folder_or_to_the_processor(args: JobArgs, text: str, output: str, said: str) -> None:
    module(args).write_text(f"custom_model = feed = print\n{text}")
    assert messages(replace(args, mode=JobMode.PREDICT, output=output)) == ([said] if said else [])


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("from other import custom_model, loss, optimizer, feed, eval_metrics_fn", id="imported"),
        pytest.param("import other as custom_model\nloss = optimizer = feed = eval_metrics_fn = print", id="assigned"),
        pytest.param("from other import *", id="anything"),
        pytest.param("try:\n    import x\nexcept ImportError:\n    from other import *", id="anything-below-a-try"),
        pytest.param(
            "if 1:\n    class custom_model: ...\n    loss, (optimizer, feed) = 1, (2, 3)\neval_metrics_fn: int = 1",
            id="below-an-if",
        ),
    ],
)
def test_a_function_may_come_from_anywhere(args: JobArgs, text: str) -> None:
    module(args).write_text(text)
    assert messages(args) == []


def test_the_module_is_not_run(args: JobArgs, tmp_path: Path) -> None:
    module(args).write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n" + module(args).read_text())
    assert messages(args) == []
    assert not (tmp_path / "ran").exists()


def test_what_is_no_python_is_named_with_its_line(args: JobArgs) -> None:
    module(args).write_text("def custom_model(:\n")
    (found,) = messages(args)
    assert "can't be read" in found
    assert "line 1" in found


def test_a_package_may_be_the_module(args: JobArgs) -> None:
    inside = module(args).with_suffix("") / "__init__.py"
    inside.parent.mkdir()
    module(args).rename(inside)
    assert messages(args) == []


def test_a_script_of_ones_own_needs_no_model(args: JobArgs) -> None:
    assert messages(replace(args, job_command="python3 train.py", model_def="")) == []
