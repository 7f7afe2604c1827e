"""Scripts with one mistake each, and what a rehearsal names for it."""

from __future__ import annotations

from dataclasses import dataclass

from tidewater.cli.rehearse.compare import Promise


@dataclass(frozen=True)
class Fault:
    """A mistake in a script."""

    script: str
    promise: Promise
    """One that does not hold."""
    piece: str
    """How the name of the piece at fault begins."""
    remedy: str
    """A part of it."""


def _script(
    before: str, *, model: str = "mlp()", optimizer: str = "SGD", points: str = "Points()", more: str = ""
) -> str:
    return f"""{before}

def training(config):
    model = {model}
    optimizer = {optimizer if "(" in optimizer else f"torch.optim.{optimizer}(model.parameters(), 0.1, momentum=0.9)"}
    return tidewater.Training(model=model, optimizer=optimizer, dataset={points}, loss=classify, {more})
"""


FAULTS = {
    "counter_in_an_attribute": Fault(
        _script(
            """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net, self.calls = mlp(), 0

    def forward(self, x):
        self.calls += 1
        return self.net(x) / (1 + 0.001 * self.calls)
""",
            model="Net()",
        ),
        Promise.ALIKE,
        "attribute/calls",
        "count in on_step, in an object in `stateful`",
    ),
    "average_in_a_variable": Fault(
        _script(
            """
average = {}

def on_step(report, model):
    for name, value in model.state_dict().items():
        average[name] = average.get(name, value.clone()).lerp(value, 0.1)
""",
            more="on_step=lambda report: on_step(report, model) or average,",
        ),
        Promise.HANDED_OVER,
        "variable/average",
        "put it into an object in `stateful`",
    ),
    "half_of_the_state": Fault(
        _script(
            """
class Mean:
    def __init__(self):
        self.mean, self.count = 0.0, 0

    def add(self, report):
        self.count += 1
        self.mean += (report.loss - self.mean) / self.count

    def state_dict(self):
        return {"mean": self.mean}

    def load_state_dict(self, state):
        self.mean = state["mean"]

mean = Mean()
""",
            more='stateful={"mean": mean}, on_step=mean.add,',
        ),
        Promise.HANDED_OVER,
        "object/mean.count",
        "return it in the object's state_dict()",
    ),
    "another_update_by_rank": Fault(
        _script(
            """
@torch.no_grad()
def on_step(report, model):
    if report.rank == 0:
        model[2].bias.add_(1e-3)
""",
            more="on_step=lambda report: on_step(report, model),",
        ),
        Promise.ALIKE,
        "model/2.bias",
        "depends on the worker: its rank",
    ),
    "own_generator_in_the_optimizer": Fault(
        _script(
            """
class Noisy(torch.optim.SGD):
    def __init__(self, *given, **more):
        super().__init__(*given, **more)
        self.rng = torch.Generator()
        self.rng.seed()

    @torch.no_grad()
    def step(self, closure=None):
        super().step(closure)
        for p in self.param_groups[0]["params"]:
            p.add_(torch.randn(p.shape, generator=self.rng), alpha=1e-3)
""",
            optimizer="Noisy(model.parameters(), 0.1)",
        ),
        Promise.ALIKE,
        "optimizer/0.rng",
        "seed it with config.seed",
    ),
    "draws_by_the_rank": Fault(
        _script(
            """
def on_step(report):
    for _ in range(report.rank + 2):
        random.random()
""",
            more="on_step=on_step,",
        ),
        Promise.ALIKE,
        "draws/on_step",
        "the number of draws must not depend on the worker",
    ),
    "samples_without_a_seed": Fault(
        _script(
            """
rng = random.Random()

class Noisy(Points):
    def __getitem__(self, index):
        x, y = super().__getitem__(index)
        return x + 0.1 * rng.random(), y
""",
            points="Noisy()",
        ),
        Promise.REPEATABLE,
        "sample ",
        "something is drawn without a seed",
    ),
    "momentum_set_by_hand": Fault(
        _script(
            """
def on_step(report, optimizer):
    if report.step == 3:
        optimizer.param_groups[0]["momentum"] = 0.5
""",
            more="on_step=lambda report: on_step(report, optimizer),",
        ),
        Promise.HANDED_OVER,
        "optimizers/0/param_groups/0/momentum",
        "a resume takes hyperparameters from the script",
    ),
    "a_phase_in_a_variable": Fault(
        _script(
            """
phase = {"steps": 0}

def on_step(report):
    phase["steps"] += 1

def before_step(model):
    for p in model.parameters():
        p.grad.mul_(0.2 if phase["steps"] > 3 else 1.0)
""",
            more="on_step=on_step, before_step=before_step,",
        ),
        Promise.ALIKE,
        "model/",
        "depends on the worker",
    ),
    "a_value_that_cannot_be_stored": Fault(
        _script(
            """
import enum

class Phase(enum.Enum):
    WARM = 1

class Phases:
    def state_dict(self):
        return {"phase": Phase.WARM}

    def load_state_dict(self, state):
        pass
""",
            more='stateful={"phases": Phases()},',
        ),
        Promise.TRAINS,
        "worker-",
        "the worker's last lines say why",
    ),
    "another_split_in_each_worker": Fault(
        _script(
            """
order = np.random.default_rng().permutation(109).tolist()
""",
            points="torch.utils.data.Subset(Points(150), order)",
        ),
        Promise.TRAINS,
        "worker-",
        "the worker's last lines say why",
    ),
    "a_stream_that_does_not_continue": Fault(
        _script(
            """
class Lines(torch.utils.data.IterableDataset):
    def __iter__(self):
        yield from Points()

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass
""",
            points="Lines()",
        ),
        Promise.TRAINS,
        "worker-",
        "the worker's last lines say why",
    ),
}
