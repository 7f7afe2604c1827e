"""A model of the zoo is loaded whole, or an error names the file, the function and what is expected."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from elasticdl.data.reader import Metadata
from elasticdl.errors import DamagedData, InputError, ZooError
from elasticdl.zoo.callbacks import MaxSteps
from elasticdl.zoo.load import load
from elasticdl.zoo.optimizers import SGD
from elasticdl.zoo.spec import Mode

MODEL = """
    import torch
    from elasticdl.data.reader import Reader
    from elasticdl.zoo.callbacks import MaxSteps
    from elasticdl.zoo.metrics import Accuracy
    from elasticdl.zoo.optimizers import SGD
    from elasticdl.zoo.spec import PredictionOutputsProcessor

    def custom_model(hidden=4):
        return torch.nn.Linear(2, hidden)

    def loss(labels, predictions):
        return ((predictions.sum(1) - labels) ** 2).mean()

    def optimizer(lr=0.1):
        return SGD(lr=lr)

    def feed(records, mode, metadata):
        features = torch.tensor([[float(len(each)), 1.0] for each in records])
        return features if mode == "prediction" else (features, torch.arange(len(records)))

    def eval_metrics_fn():
        return {"accuracy": Accuracy()}
"""
DEF = "pets.net.custom_model"


def zoo(folder: Path, extra: str = "", model: str = MODEL) -> str:
    """Write a zoo with some more lines in its model; return its folder."""
    (folder / "zoo" / "pets").mkdir(parents=True, exist_ok=True)
    (folder / "zoo" / "pets" / "net.py").write_text(textwrap.dedent(model) + textwrap.dedent(extra))
    return str(folder / "zoo")


def test_a_model_is_loaded_with_all_its_functions(tmp_path: Path) -> None:
    spec = load(zoo(tmp_path), DEF, "hidden=3")
    model = spec.model()
    batch = spec.feed([b"a", b"bc"], Mode.TRAINING, Metadata())
    assert batch.features.tolist() == [[1.0, 1.0], [2.0, 1.0]]
    assert spec.loss(batch.labels, model(batch.features)).shape == ()
    assert model(batch.features).shape == (2, 3)
    assert (spec.optimizer, spec.callbacks, spec.custom_data_reader) == (SGD(lr=0.1), (), None)
    assert spec.eval_metrics().names == ("accuracy",)
    assert spec.file == tmp_path / "zoo" / "pets" / "net.py"


def test_each_call_makes_a_new_model_and_new_metrics(tmp_path: Path) -> None:
    spec = load(zoo(tmp_path), DEF)
    assert spec.model() is not spec.model()
    spec.eval_metrics().update(torch.tensor([1]), torch.tensor([[0.0, 1.0]]))
    assert spec.eval_metrics().compute()["accuracy"] != 1.0


def test_for_prediction_the_features_alone_are_fed(tmp_path: Path) -> None:
    batch = load(zoo(tmp_path), DEF).feed([b"a"], Mode.PREDICTION, Metadata())
    assert (batch.features.shape, batch.labels) == ((1, 2), None)


def test_the_model_may_be_a_class(tmp_path: Path) -> None:
    extra = """
        class Net(torch.nn.Linear):
            def __init__(self, size):
                super().__init__(size, 1)
    """
    model = load(zoo(tmp_path, extra), "pets.net.Net", {"size": 5}).model()
    assert isinstance(model, torch.nn.Linear)
    assert model.in_features == 5


def test_optional_functions_are_found(tmp_path: Path) -> None:
    extra = """
        class Numbers(Reader):
            def __init__(self, address, step):
                self.step = step
            def shards(self):
                return []
            def read(self, shard):
                yield from range(shard.start, shard.end, self.step)

        class PredictionOutputsProcessor(PredictionOutputsProcessor):
            def process(self, predictions, worker_id):
                self.seen = (predictions, worker_id)

        def callbacks():
            return [MaxSteps(7)]

        def custom_data_reader(address, **params):
            return Numbers(address, **params)
    """
    spec = load(zoo(tmp_path, extra), DEF)
    assert spec.callbacks == (MaxSteps(7),)
    assert spec.custom_data_reader is not None
    assert spec.custom_data_reader("numbers", {"step": 2}).shards() == []
    assert spec.prediction_outputs_processor is not None
    spec.prediction_outputs_processor().process("p", 3)


def test_a_job_needs_only_the_functions_that_it_uses(tmp_path: Path) -> None:
    folder = zoo(tmp_path, model="import torch\ndef custom_model():\n    return torch.nn.Linear(2, 1)\n")
    spec = load(folder, DEF, uses={})
    assert isinstance(spec.model(), torch.nn.Linear)
    assert spec.optimizer == SGD()
    unused: list[Any] = [lambda: spec.loss(None, None), lambda: spec.feed([], Mode.TRAINING, Metadata())]
    for function, name in zip([*unused, spec.eval_metrics], ("loss", "feed", "eval_metrics_fn"), strict=True):
        with pytest.raises(ZooError, match=f"--{name}: the model was loaded without"):
            function()
    with pytest.raises(ZooError, match="has no feed"):
        load(folder, DEF, uses={"feed": True})


def test_the_processor_of_predictions_is_made_by_who_predicts(tmp_path: Path) -> None:
    extra = """
        class Mine(PredictionOutputsProcessor):
            made = 0
            def __init__(self):
                Mine.made += 1
            def process(self, predictions, worker_id):
                pass
    """
    make = load(zoo(tmp_path, extra), DEF, names={"prediction_outputs_processor": "Mine"}).prediction_outputs_processor
    assert make is not None
    processor: Any = make()
    assert processor.made == 1


def test_a_module_that_is_imported_is_no_function(tmp_path: Path) -> None:
    assert load(zoo(tmp_path, "from elasticdl.zoo import callbacks\n"), DEF).callbacks == ()


def test_names_may_be_others_and_in_other_modules(tmp_path: Path) -> None:
    folder = zoo(tmp_path, "def feed2(records, mode):\n    return torch.zeros(1), torch.ones(1)\n")
    (tmp_path / "zoo" / "losses.py").write_text("def nothing(labels, predictions):\n    return predictions.sum() * 0\n")
    spec = load(folder, DEF, names={"feed": "feed2", "loss": "losses.nothing"})
    batch = spec.feed([b"a"], Mode.TRAINING, Metadata())
    assert (batch.labels.tolist(), spec.loss(batch.labels, torch.ones(2)).item()) == ([1.0], 0.0)


def test_modules_of_a_zoo_import_each_other(tmp_path: Path) -> None:
    folder = zoo(tmp_path, "from . import sizes\nfrom pets.sizes import SIZE\n")
    (tmp_path / "zoo" / "pets" / "sizes.py").write_text("SIZE = 3\n")
    assert load(folder, DEF).model() is not None


def test_two_zoos_with_the_same_names_do_not_mix(tmp_path: Path) -> None:
    first = load(zoo(tmp_path / "1"), DEF)
    second = load(zoo(tmp_path / "2", model=MODEL.replace("lr=0.1", "lr=0.7")), DEF)
    assert (first.optimizer.lr, second.optimizer.lr) == (0.1, 0.7)


def test_a_module_may_have_the_name_of_an_installed_package(tmp_path: Path) -> None:
    zoo(tmp_path)
    (tmp_path / "zoo" / "pets").rename(tmp_path / "zoo" / "numpy")
    assert load(str(tmp_path / "zoo"), "numpy.net.custom_model").model() is not None
    assert sys.modules["numpy"] is np


def gone(name: str) -> str:
    return MODEL.replace(f"def {name}(", f"def not_{name}(")


BROKEN = {
    "loss-missing": (gone("loss"), r"--loss=pets\.net\.loss: .*net\.py has no loss.*expected: def loss\(labels"),
    "optimizer-missing": (gone("optimizer"), r"--optimizer=.*has no optimizer.*def optimizer\(lr=0.1\)"),
    "feed-missing": (gone("feed"), r"--feed=.*has no feed.*def feed\(records, mode, metadata\)"),
    "metrics-missing": (gone("eval_metrics_fn"), r"--eval_metrics_fn=.*has no eval_metrics_fn"),
    "loss-arguments": (
        MODEL.replace("loss(labels, predictions)", "loss(labels)"),
        r"loss\(labels\) in .*net\.py",
    ),
    "feed-arguments": (
        MODEL.replace("feed(records, mode, metadata)", "feed(records)"),
        r"feed\(records\) in .*net",
    ),
    "optimizer-arguments": (MODEL.replace("optimizer(lr=0.1)", "optimizer(lr)"), r"optimizer\(lr\) in .* no arguments"),
    "metrics-arguments": (MODEL.replace("eval_metrics_fn()", "eval_metrics_fn(x)"), r"eval_metrics_fn\(x\) in"),
    "loss-no-function": (MODEL + "\n    loss = 3\n", r"--loss: loss in .*net\.py is 3, no function"),
    "optimizer-of-torch": (
        MODEL.replace("return SGD(lr=lr)", "return torch.optim.SGD"),
        "returned <class .torch.optim",
    ),
    "optimizer-returns": (MODEL.replace("return SGD(lr=lr)", "return 'sgd'"), r"optimizer\(\) returned 'sgd'"),
    "optimizer-fails": (MODEL.replace("return SGD(lr=lr)", "return 1 / 0"), r"ZeroDivisionError.*net\.py, line 16\)"),
    "metrics-return": (MODEL.replace('{"accuracy": Accuracy()}', "[]"), r"eval_metrics_fn in .*net\.py returned \[\]"),
    "metrics-value": (MODEL.replace("Accuracy()}", "Accuracy}"), r"eval_metrics_fn.*metric accuracy is the class"),
    "callbacks-return": (MODEL + "\n    def callbacks():\n        return ['x']\n", r"--callbacks: .* returned 'x'"),
    "callbacks-none": (MODEL + "\n    def callbacks():\n        pass\n", r"--callbacks: .* returned None"),
    "processor": (MODEL + "\n    PredictionOutputsProcessor = 3\n", r"--prediction_outputs_processor: .* is 3"),
    "syntax": (MODEL + "\n    def:\n", r"net\.py can't be imported: SyntaxError.*line 25\)"),
    "import": (MODEL + "\n    import no_such_package\n", r"can't be imported: ModuleNotFoundError.*line 25\)"),
}


@pytest.mark.parametrize(("model", "said"), BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_module_is_named_with_what_is_expected(tmp_path: Path, model: str, said: str) -> None:
    with pytest.raises(ZooError, match=f"(?s){said}") as caught:
        load(zoo(tmp_path, model=model), DEF)
    assert str(tmp_path) in caught.value.message
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("model_def", "params", "said"),
    [
        ("custom_model", "", "--model_def='custom_model' is no dotted name"),
        ("pets/net.custom_model", "", "is no dotted name"),
        ("pets.nothing.custom_model", "", r"has no pets/nothing\.py\nits modules are pets\.net"),
        ("pets.net.custom", "", r"net\.py has no custom\nit has .*custom_model"),
        ("pets.net.torch", "", "torch in .* is <module"),
        (DEF, "size=3", r"takes \(hidden=4\), and --model_params gives size"),
        (DEF, "size", "--model_params: 'size' is not name=value"),
    ],
)
def test_a_wrong_definition_is_named(tmp_path: Path, model_def: str, params: str, said: str) -> None:
    with pytest.raises(InputError, match=f"(?s){said}"):
        load(zoo(tmp_path), model_def, params)


def test_a_zoo_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ZooError, match=f"--model_zoo={tmp_path}/zoo is not there"):
        load(str(tmp_path / "zoo"), DEF)


def test_an_optional_function_that_was_asked_for_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(ZooError, match="has no my_callbacks"):
        load(zoo(tmp_path), DEF, names={"callbacks": "my_callbacks"})


def call(spec: Any, name: str) -> None:
    if name == "model":
        spec.model()
    elif name == "feed":
        spec.feed([b"a"], Mode.TRAINING, Metadata())
    else:
        spec.loss(torch.zeros(1), torch.zeros(1, 1))


@pytest.mark.parametrize(
    ("name", "model", "said"),
    [
        ("model", MODEL.replace("torch.nn.Linear(2, hidden)", "None"), "custom_model in .* returned NoneType"),
        ("feed", MODEL.replace("return features if", "return 3 if True else features if"), "returned int for mode tra"),
        ("feed", MODEL.replace("len(each)", "each.x"), r"feed\(\) in .* failed: AttributeError: .*net\.py, line 19\)"),
        ("loss", MODEL.replace(".mean()", ".repeat(2)"), r"loss in .* returned \(2,\)"),
        ("loss", MODEL.replace(".mean()", ".tolist()"), "loss in .* returned list"),
    ],
)
def test_a_function_that_misbehaves_is_named(tmp_path: Path, name: str, model: str, said: str) -> None:
    spec = load(zoo(tmp_path, model=model), DEF)
    with pytest.raises(ZooError, match=said):
        call(spec, name)


def test_a_damaged_record_stays_what_it_is(tmp_path: Path) -> None:
    decoding = "from elasticdl.data.examples.fields import decode; decode(b'x')"
    broken = MODEL.replace("features =", f"{decoding}\n        features =", 1)
    with pytest.raises(DamagedData, match="a record of 1 bytes"):
        call(load(zoo(tmp_path, model=broken), DEF), "feed")
