"""Parts from any number of tasks give the metrics of the whole."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from elasticdl.errors import ZooError
from elasticdl.zoo.metrics import AUC, Accuracy, Mean, Metric, MetricLike, Metrics, State
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, roc_auc_score

SCORES = st.one_of(st.floats(0, 1, width=32), st.sampled_from([-0.0, 0.0, 0.5, 1.0]))
SAMPLES = st.lists(st.tuples(st.integers(0, 1), SCORES), min_size=1, max_size=60)
Samples = list[tuple[int, float]]


def made() -> Metrics:
    metrics: dict[str, MetricLike] = {
        "auc": AUC(),
        "accuracy": Accuracy(),
        "square": lambda labels, predictions: (predictions - labels) ** 2,
    }
    return Metrics(metrics)


def tensors(samples: Samples) -> tuple[torch.Tensor, torch.Tensor]:
    labels, scores = zip(*samples, strict=True)
    return torch.tensor(labels), torch.tensor(scores, dtype=torch.float32)


def cut(samples: Samples, draw: random.Random) -> list[Samples]:
    """Return the samples in parts of random sizes."""
    parts = []
    while samples:
        size = draw.randint(1, len(samples))
        parts.append(samples[:size])
        samples = samples[size:]
    return parts


@settings(max_examples=40)
@given(SAMPLES, st.randoms(use_true_random=False))
def test_tasks_in_any_order_give_the_metrics_of_one(samples: Samples, draw: random.Random) -> None:
    whole = made()
    whole.update(*tensors(samples))
    master = made()
    for task in cut(draw.sample(samples, len(samples)), draw):
        worker = made()
        for minibatch in cut(task, draw):
            worker.update(*tensors(minibatch))
        master.merge_json(worker.to_json())
    assert master.compute() == pytest.approx(whole.compute(), nan_ok=True)


@settings(max_examples=30)
@given(SAMPLES)
def test_the_numbers_are_those_of_scikit_learn(samples: Samples) -> None:
    metrics = made()
    labels, scores = tensors(samples)
    metrics.update(labels, scores)
    found = metrics.compute()
    assert found["accuracy"] == pytest.approx(accuracy_score(labels, scores > 0.5))
    if len(set(labels.tolist())) == 2:
        assert found["auc"] == pytest.approx(roc_auc_score(labels, (scores.double() * 199).ceil().clamp(1)))
    else:
        assert found["auc"] != found["auc"], "NaN: there is no pair of a positive and a negative sample"


def test_an_auc_has_the_same_size_for_any_number_of_scores_and_is_near_the_exact_one() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 2, (20_000,), generator=generator)
    logits = torch.randn(20_000, generator=generator) + labels
    metric, few = AUC(from_logits=True), AUC(from_logits=True)
    metric.update(labels, logits)
    few.update(labels[:2], logits[:2])
    assert metric.compute() == pytest.approx(roc_auc_score(labels, logits), abs=1e-4)
    assert torch.tensor(metric.state()["counts"]).shape == torch.tensor(few.state()["counts"]).shape == (2, 199)


def test_an_auc_of_few_thresholds_is_that_of_keras() -> None:
    # The example of https://www.tensorflow.org/api_docs/python/tf/keras/metrics/AUC
    metric = AUC(num_thresholds=3)
    metric.update(torch.tensor([0, 0, 1, 1]), torch.tensor([0.0, 0.5, 0.3, 0.9]))
    assert metric.compute() == 0.75


def test_the_class_of_the_highest_score_counts() -> None:
    metric = Accuracy()
    metric.update(torch.tensor([2, 0, 1]), torch.tensor([[0.1, 0.2, 0.7], [0.1, 0.8, 0.1], [0.0, 0.5, 0.5]]))
    assert metric.compute() == 2 / 3


def test_a_threshold_divides_single_scores() -> None:
    metric = Accuracy(threshold=0.0)
    metric.update(torch.tensor([[1], [0], [1]]), torch.tensor([[0.1], [-0.1], [-0.2]]))
    assert metric.compute() == 2 / 3


def test_one_number_for_a_minibatch_weighs_as_its_samples() -> None:
    metric = Mean(lambda labels, predictions: predictions.mean())
    for values in ([1.0], [2.0, 3.0, 4.0]):
        metric.update(torch.zeros(len(values)), torch.tensor(values))
    assert metric.compute() == 2.5


def test_nothing_has_no_metric() -> None:
    assert all(value != value for value in made().compute().values())


def test_a_model_with_several_outputs_has_metrics_for_each() -> None:
    metrics = Metrics({"a": {"accuracy": Accuracy()}, "b": {"auc": AUC(), "accuracy": Accuracy()}})
    metrics.update(torch.tensor([0, 1]), {"a": torch.tensor([0.1, 0.9]), "b": torch.tensor([0.9, 0.1])})
    assert metrics.compute() == {"a.accuracy": 1.0, "b.auc": 0.0, "b.accuracy": 0.0}
    other = Metrics({"a": {"accuracy": Accuracy()}, "b": {"auc": AUC(), "accuracy": Accuracy()}})
    assert other.merge_json(metrics.to_json()).compute() == metrics.compute()


class Largest(Metric):
    """A metric of one's own."""

    def __init__(self) -> None:
        self.largest = float("nan")

    def update(self, labels: Any, predictions: Any) -> None:
        self.merge({"largest": float(predictions.max())})

    def state(self) -> State:
        return {"largest": self.largest}

    def merge(self, state: State) -> None:
        self.largest = max(state["largest"], self.largest)

    def compute(self) -> float:
        return self.largest


def test_a_metric_of_ones_own_is_used() -> None:
    parts = [Metrics({"largest": Largest()}) for _ in range(2)]
    for part, value in zip(parts, (3.0, 5.0), strict=True):
        part.update(torch.zeros(1), torch.tensor([value]))
    assert parts[0].merge_json(parts[1].to_json()).compute() == {"largest": 5.0}


@pytest.mark.parametrize(
    ("metric", "labels", "predictions", "said"),
    [
        pytest.param(AUC(), [2], [0.1], "metric m: AUC: a label is neither 0 nor 1", id="auc-labels"),
        pytest.param(AUC(), [1], [float("nan")], "metric m: AUC: a score is NaN", id="auc-nan"),
        pytest.param(AUC(), [1], [1.5], "metric m: AUC: a score is not between 0 and 1", id="auc-logits"),
        pytest.param(AUC(), [1, 0], [0.1], "metric m: AUC: 2 labels for 1 predictions", id="auc-count"),
        pytest.param(Accuracy(), [1, 0], [[0.1, 0.2]], "metric m: accuracy: 2 labels for 1 predictions", id="count"),
        pytest.param(lambda a, b: b[:1], [1, 0], [0.1, 0.2], r"metric m: .* shape \(1,\) for 2 samples", id="shape"),
        pytest.param(lambda a, b: a / {}, [1], [0.1], "metric m failed: TypeError", id="fails"),
        pytest.param(lambda a, b: b[9], [1], [0.1], r"(?s)metric m failed.*labels \(1,\)", id="output"),
    ],
)
def test_a_metric_that_fails_is_named(metric: MetricLike, labels: Any, predictions: Any, said: str) -> None:
    with pytest.raises(ZooError, match=said):
        Metrics({"m": metric}).update(torch.tensor(labels), torch.tensor(predictions))


@pytest.mark.parametrize(("given_", "said"), [(AUC, "is the class AUC"), (3, "metric m is 3")])
def test_what_is_no_metric_is_named(given_: Any, said: str) -> None:
    with pytest.raises(ZooError, match=said):
        Metrics({"m": given_})


def test_metrics_of_another_model_do_not_combine() -> None:
    with pytest.raises(ZooError, match=r"\['other'\] do not combine with"):
        made().merge_json(Metrics({"other": AUC()}).to_json())
