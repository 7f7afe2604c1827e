"""Frozen parameters, modes and plain attributes of the modules are state, and an evaluation changes no mode."""

from __future__ import annotations

import copy
from typing import Any, cast

import pytest
import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

from tests.elastic.method.conftest import Trainee, assert_same_bits, batches, bits
from tidewater.elastic.group.group import Group
from tidewater.elastic.method.modules import Attributes, evaluating


class Counting(nn.Module):
    """A layer with attributes of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.calls, self.rate, self.phase, self.history = 0, 0.5, None, list[float]()


def model() -> Any:
    return nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.1), nn.BatchNorm1d(2), Counting())


def change(net: Any) -> None:
    net[0].weight.requires_grad_(False)
    net[1].p = 0.4
    net[2].eval()
    net[3].calls, net[3].phase, net[3].new = 3, "late", float("nan")


def test_what_has_changed_since_the_build_is_carried_over_and_nothing_else() -> None:
    source, target = model(), model()
    before, other = Attributes(source), Attributes(target)
    assert before.changed() == {}
    change(source)
    changed = before.changed()
    assert sorted(changed) == ["0.weight.requires_grad", "1.p", "2.training", "3.calls", "3.new", "3.phase"]
    target[1].p, target[3].rate = 0.9, 0.7
    other.load(changed)
    assert repr(other.changed()) == repr(changed)
    assert (target[1].p, target[2].training, target[3].rate) == (0.4, False, 0.5)
    assert not target[0].weight.requires_grad
    other.load({})
    assert other.changed() == {"3.new": target[3].new}, "an attribute that the built model lacks is left"
    assert target[0].weight.requires_grad
    assert target[2].training


def test_a_compiled_model_has_the_names_of_the_plain_one() -> None:
    net = model()
    compiled = nn.Module()
    compiled._orig_mod = nn.Sequential(net)  # as the wrapper of torch.compile names it
    attributes = Attributes(compiled)
    change(net)
    assert "0.1.p" in attributes.changed()
    plain: Any = nn.Sequential(model())
    Attributes(plain).load(attributes.changed())
    assert plain[0][1].p == 0.4
    assert not plain[0][2].training


def test_a_wrapper_gets_no_copy_of_an_attribute_that_it_hands_on() -> None:
    one, another = Counting(), Counting()
    source, target = checkpoint_wrapper(one), cast("Any", checkpoint_wrapper(another))
    before, other = Attributes(nn.Sequential(source)), Attributes(nn.Sequential(target))
    one.calls = 3
    source.eval()
    other.load(before.changed())
    assert (target.calls, target.training, another.training) == (3, False, False)
    another.calls += 1
    assert target.calls == 4


def test_attributes_that_move_are_named_with_containers_that_grow() -> None:
    net = model()
    attributes = Attributes(net)
    net[3].calls += 1
    net[3].history.append(0.5)
    assert attributes.moved() == ["3.calls", "3.history"]
    assert attributes.moved() == []
    net[1].p = 0.7
    attributes.load(attributes.changed())
    assert attributes.moved() == []


class Merging(nn.Linear):
    """Does more than set its mode, as layers with merged weights do."""

    merged = False

    def train(self, mode: bool = True) -> Merging:
        self.merged = not mode
        return super().train(mode)


def test_after_an_evaluation_every_module_has_the_mode_that_the_script_has_set() -> None:
    shared = nn.Dropout()
    net = nn.Sequential(nn.Sequential(shared, nn.BatchNorm1d(2)).eval(), nn.Sequential(shared), Merging(2, 2))
    shared.eval()
    before = [each.training for each in net.modules()]
    with pytest.raises(KeyError), evaluating(net):  # noqa: PT012
        assert not any(each.training for each in net.modules())
        assert net[2].merged
        raise KeyError
    assert [each.training for each in net.modules()] == before
    assert before == [True, False, False, False, True, True]
    assert not net[2].merged
    with evaluating(net.eval()):
        pass
    assert not any(each.training for each in net.modules())


@pytest.mark.parametrize("how", ["join", "resume"])
def test_a_layer_that_on_step_has_frozen_stays_frozen(group: Group, how: str) -> None:
    peer, other = (Trainee(group, lambda model: {"optimizer": torch.optim.SGD(model.parameters(), 0.1)}) for _ in "ab")
    peer.train(batches(2))
    peer.model[0].requires_grad_(False)
    kept = bits(peer.model[0])
    (other.state.load if how == "join" else other.state.resume)(peer.state.tree())
    for each in (peer, other):
        each.train(batches(2))
        assert_same_bits(bits(each.model[0]), kept)
    assert_same_bits(bits(other.model), bits(peer.model))
    assert other.state.digest() == peer.state.digest()


class Averaging(torch.optim.SGD):
    """Trains other values than it evaluates, as ScheduleFree does, and refuses a step in eval mode as that does."""

    def __init__(self, params: Any, lr: float) -> None:
        super().__init__(params, lr)
        for settings in self.param_groups:
            settings["train_mode"] = False

    def train(self) -> None:
        self._move(train=True, weight=1 - 0.9)

    def eval(self) -> None:
        self._move(train=False, weight=1 - 1 / 0.9)

    @torch.no_grad()
    def _move(self, *, train: bool, weight: float) -> None:
        for settings in self.param_groups:
            if settings["train_mode"] is not train:
                for each in settings["params"]:
                    if "z" in self.state[each]:
                        each.lerp_(self.state[each]["z"], weight)
            settings["train_mode"] = train

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        assert self.param_groups[0]["train_mode"], "not in train mode when step is called"
        for each in self.param_groups[0]["params"]:
            self.state[each].setdefault("z", each.clone()).sub_(each.grad, alpha=0.3)
        return super().step(closure)


def averaging(group: Group, **more: Any) -> Trainee:
    return Trainee(group, lambda model: {"optimizer": Averaging(model.parameters(), 0.1)}, **more)


def evaluated(trainee: Trainee) -> list[torch.Tensor]:
    with trainee.state.evaluating():
        return bits(trainee.model)


def test_an_optimizer_with_modes_is_evaluated_in_its_own_and_trains_on_with_the_same_bits(group: Group) -> None:
    trainee, undisturbed = averaging(group), averaging(group)
    undisturbed.train(batches(4))
    trainee.train(batches(2))
    before = bits(trainee.model)
    assert not torch.equal(evaluated(trainee)[0], before[0])
    assert_same_bits(bits(trainee.model), before)
    trainee.train(batches(4)[2:])
    assert_same_bits(bits(trainee.model), bits(undisturbed.model))


def test_a_checkpoint_of_an_optimizer_with_modes_has_what_to_evaluate_and_continues_exactly(group: Group) -> None:
    before, joined, resumed = (averaging(group) for _ in range(3))
    before.train(batches(2))
    saved = copy.deepcopy(before.state.saved_tree())
    names = dict(before.model.named_parameters())
    assert_same_bits([saved["model"][name] for name in names], evaluated(before))
    resumed.state.resume(saved)
    joined.state.load(copy.deepcopy(before.state.tree()))
    for each in (before, joined, resumed):
        each.train(batches(4)[2:])
        assert_same_bits(bits(each.model), bits(before.model))


def test_another_optimizer_continues_from_what_one_with_modes_evaluates(group: Group) -> None:
    before = averaging(group)
    before.train(batches(2))
    saved = copy.deepcopy(before.state.saved_tree())
    after = Trainee(group, lambda model: {"optimizer": torch.optim.SGD(model.parameters(), 0.1)}, fresh_optimizer=True)
    after.state.resume(saved)
    assert_same_bits(bits(after.model), evaluated(before))
