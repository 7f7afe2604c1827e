"""Methods as people write them: optimizers, schedules, averages, data and what changes between steps."""

from __future__ import annotations

SCRIPTS: dict[str, str] = {}

SCRIPTS["madgrad"] = """
class Madgrad(torch.optim.Optimizer):
    def __init__(self, parameters, lr=1e-2, momentum=0.9):
        super().__init__(parameters, dict(lr=lr, momentum=momentum))
        self.state["k"] = torch.tensor([0], dtype=torch.long)

    @torch.no_grad()
    def step(self, closure=None):
        k = self.state["k"].item()
        for group in self.param_groups:
            lamb = group["lr"] * math.sqrt(k + 1)
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if "s" not in state:
                    state["s"], state["v"], state["x0"] = torch.zeros_like(p), torch.zeros_like(p), p.clone()
                state["s"].add_(p.grad, alpha=lamb)
                state["v"].addcmul_(p.grad, p.grad, value=lamb)
                z = state["x0"] - state["s"] / (state["v"].pow(1 / 3) + 1e-6)
                p.mul_(group["momentum"]).add_(z, alpha=1 - group["momentum"])
        self.state["k"] += 1


def training(config):
    model = mlp()
    return tidewater.Training(model=model, optimizer=Madgrad(model.parameters()), dataset=Points(), loss=classify)
"""

SCRIPTS["lion_in_groups"] = """
class Lion(torch.optim.Optimizer):
    def __init__(self, parameters, lr=1e-3, betas=(0.9, 0.99)):
        super().__init__(parameters, dict(lr=lr, betas=betas, step=0))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            group["step"] += 1
            for p in group["params"]:
                average = self.state[p].setdefault("average", torch.zeros_like(p))
                p.sub_(average.lerp(p.grad, 1 - group["betas"][0]).sign(), alpha=group["lr"])
                average.lerp_(p.grad, 1 - group["betas"][1])


def training(config):
    model = mlp()
    groups = [{"params": model[0].parameters()}, {"params": model[2].parameters(), "lr": 3e-3}]
    return tidewater.Training(model=model, optimizer=Lion(groups), dataset=Points(), loss=classify)
"""

SCRIPTS["langevin"] = """
class Langevin(torch.optim.SGD):
    @torch.no_grad()
    def step(self, closure=None):
        super().step(closure)
        for group in self.param_groups:
            for p in group["params"]:
                p.add_(torch.randn_like(p), alpha=1e-3 * math.sqrt(group["lr"]))


def training(config):
    model = mlp()
    optimizer = Langevin(model.parameters(), 0.05)
    return tidewater.Training(model=model, optimizer=optimizer, dataset=Points(), loss=classify)
"""

SCRIPTS["schedule_free"] = """
class ScheduleFree(torch.optim.Optimizer):
    def __init__(self, parameters, lr=0.1):
        super().__init__(parameters, dict(lr=lr, k=0, train_mode=True))

    @torch.no_grad()
    def _to(self, training):
        for group in self.param_groups:
            for p in group["params"] if group["train_mode"] != training else ():
                if "z" in self.state[p]:
                    p.lerp_(self.state[p]["z"], 0.1 if training else 1 - 1 / 0.9)
            group["train_mode"] = training

    def train(self):
        self._to(True)

    def eval(self):
        self._to(False)

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            group["k"] += 1
            for p in group["params"]:
                z = self.state[p].setdefault("z", p.clone())
                p.lerp_(z, 1 / group["k"]).add_(p.grad, alpha=group["lr"] * (0.9 * (1 - 1 / group["k"]) - 1))
                z.sub_(p.grad, alpha=group["lr"])


def training(config):
    model = mlp()
    return tidewater.Training(
        model=model,
        optimizer=ScheduleFree(model.parameters(), 0.05),
        dataset=Points(),
        loss=classify,
        validation=Points(30, seed=3),
        score=lambda model, batch: (model(batch[0]).argmax(1) == batch[1]).sum(),
    )
"""

SCRIPTS["one_cycle"] = """
def training(config):
    model, points = mlp(), Points()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=config.steps(len(points)))
    return tidewater.Training(model=model, optimizer=optimizer, scheduler=scheduler, dataset=points, loss=classify)
"""

SCRIPTS["warm_up_then_restarts"] = """
from torch.optim import lr_scheduler


def training(config):
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    warm = lr_scheduler.LinearLR(optimizer, 0.1, total_iters=5)
    restarts = lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=7, T_mult=2)
    scheduler = lr_scheduler.SequentialLR(optimizer, [warm, restarts], milestones=[5])
    return tidewater.Training(model=model, optimizer=optimizer, scheduler=scheduler, dataset=Points(), loss=classify)
"""

SCRIPTS["averaged_model"] = """
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn


def training(config):
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.95), use_buffers=True)
    return tidewater.Training(
        model=model,
        optimizer=torch.optim.Adagrad(model.parameters(), 0.05),
        dataset=Points(),
        loss=classify,
        stateful={"average": average},
        on_step=lambda report: average.update_parameters(model),
    )
"""

SCRIPTS["freezes_later"] = """
def training(config):
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(0.5), nn.Linear(16, 3))

    def on_step(report):
        model[2].p = max(0.1, 0.5 - 0.02 * report.step)
        if report.step == 6:
            model[0].requires_grad_(False)
            model[1].eval()

    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    return tidewater.Training(model=model, optimizer=optimizer, dataset=Points(), loss=classify, on_step=on_step)
"""

SCRIPTS["mixup"] = """
def training(config):
    model = mlp()

    def collate(samples):
        x, y = torch.utils.data.default_collate(samples)
        weight, order = np.random.beta(0.4, 0.4), torch.randperm(len(x))
        return (weight * x + (1 - weight) * x[order]).float(), y, y[order], weight

    def loss(model, batch):
        x, one, other, weight = batch
        out = model(x)
        return weight * F.cross_entropy(out, one) + (1 - weight) * F.cross_entropy(out, other)

    optimizer = torch.optim.Adadelta(model.parameters())
    return tidewater.Training(model=model, optimizer=optimizer, dataset=Points(), loss=loss, collate=collate)
"""

SCRIPTS["augmentation"] = """
class Augmented(Points):
    def __getitem__(self, index):
        x, y = super().__getitem__(index)
        if random.random() < 0.5:
            x = x.roll(int(np.random.randint(3)))
        return x + 0.01 * torch.randn_like(x), y


def training(config):
    model = mlp()
    optimizer = torch.optim.ASGD(model.parameters())
    return tidewater.Training(model=model, optimizer=optimizer, dataset=Augmented(), loss=classify)
"""

SCRIPTS["random_split"] = """
def training(config):
    model, points = mlp(), Points(150)
    order = np.random.permutation(len(points))
    train = torch.utils.data.Subset(points, order[:109].tolist())
    rest = torch.utils.data.Subset(points, order[109:].tolist())
    score = lambda model, batch: (model(batch[0]).argmax(1) == batch[1]).sum()
    optimizer = torch.optim.Rprop(model.parameters(), 1e-3)
    return tidewater.Training(
        model=model, optimizer=optimizer, dataset=train, loss=classify, validation=rest, score=score
    )
"""

SCRIPTS["stream"] = """
class Lines(torch.utils.data.IterableDataset):
    def __init__(self):
        self.points, self.next, self.epoch = Points(), 0, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        order = torch.randperm(109, generator=torch.Generator().manual_seed(self.epoch)).tolist()
        while self.next < len(order):
            self.next += 1
            yield self.points[order[self.next - 1]]

    def state_dict(self):
        return {"next": self.next, "epoch": self.epoch}

    def load_state_dict(self, state):
        self.next, self.epoch = state["next"], state["epoch"]


def training(config):
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    return tidewater.Training(model=model, optimizer=optimizer, dataset=Lines(), loss=classify)
"""

SCRIPTS["curriculum"] = """
class Curriculum:
    def __init__(self):
        self.losses, self.best = collections.deque(maxlen=5), np.float32(9)
        self.weights, self.rng = np.ones(3), np.random.RandomState(0)

    def add(self, report):
        self.losses.append(report.loss)
        self.best = min(self.best, np.float32(report.loss))
        self.weights += 0.01 * self.rng.rand(3)

    def state_dict(self):
        rng = self.rng.get_state()
        return {"losses": self.losses, "best": self.best, "weights": self.weights, "rng": (rng[0], rng[1], *rng[2:])}

    def load_state_dict(self, state):
        self.losses, self.best, self.weights = state["losses"], state["best"], state["weights"]
        self.rng.set_state(state["rng"])


def training(config):
    model, curriculum = mlp(), Curriculum()
    return tidewater.Training(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), 0.1, momentum=0.5),
        dataset=Points(),
        loss=lambda model, batch: F.cross_entropy(model(batch[0]), batch[1], torch.tensor(curriculum.weights).float()),
        stateful={"curriculum": curriculum},
        on_step=curriculum.add,
    )
"""

SCRIPTS["extra_state"] = """
class Scheduled(nn.Module):
    def __init__(self):
        super().__init__()
        self.net, self.history = mlp(), {"steps": 0, "names": ["a"]}

    def get_extra_state(self):
        return self.history

    def set_extra_state(self, state):
        self.history = state

    def forward(self, x):
        return self.net(x) / (1 + len(self.history))


def training(config):
    model = Scheduled()

    def on_step(report):
        model.history = {"steps": report.step, "names": [*model.history["names"], str(report.step)]}

    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    return tidewater.Training(model=model, optimizer=optimizer, dataset=Points(), loss=classify, on_step=on_step)
"""

SCRIPTS["uncertain_tasks"] = """
class Tasks(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk, self.one, self.other = nn.Linear(8, 16), nn.Linear(16, 3), nn.Linear(16, 8)
        self.log_vars = nn.Parameter(torch.zeros(2))


def training(config):
    model = Tasks()

    def loss(model, batch):
        x = torch.relu(model.trunk(batch[0]))
        losses = torch.stack([F.cross_entropy(model.one(x), batch[1]), F.mse_loss(model.other(x), batch[0])])
        return (losses * (-model.log_vars).exp() + model.log_vars).sum()

    return tidewater.Training(model=model, optimizer=torch.optim.Adam(model.parameters()), dataset=Points(), loss=loss)
"""

SCRIPTS["objects_in_few_images"] = """
def training(config):
    model = mlp()

    def loss(model, batch):
        chosen = batch[1] == 2
        if not chosen.any():
            return torch.zeros(()), 0
        out = model(batch[0][chosen])
        return F.cross_entropy(out, batch[1][chosen], reduction="sum"), chosen.sum()

    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    return tidewater.Training(model=model, optimizer=optimizer, dataset=Points(), loss=loss)
"""

SCRIPTS["plateau"] = """
def training(config):
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.3, momentum=0.9)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, "min", factor=0.2, patience=0, threshold=0.5)
    return tidewater.Training(
        model=model,
        optimizer=optimizer,
        scheduler=plateau,
        schedule=lambda progress: min(1.0, 5 * progress + 0.1),
        dataset=Points(),
        loss=classify,
        validation=Points(30, seed=3),
        score=lambda model, batch: F.cross_entropy(model(batch[0]), batch[1], reduction="sum"),
        keep_best="min",
    )
"""

SCRIPTS["stops_early"] = """
class Patience:
    def __init__(self):
        self.best, self.bad = 0.0, 0

    def judge(self, report):
        self.bad = 0 if report.score > self.best else self.bad + 1
        self.best = max(self.best, report.score)
        if self.bad > 0 or report.epoch > 1:
            raise tidewater.Stop(f"no better score than {self.best}")

    def state_dict(self):
        return vars(self)

    def load_state_dict(self, state):
        vars(self).update(state)


def training(config):
    model, patience = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.2), nn.Linear(16, 3)), Patience()
    return tidewater.Training(
        model=model,
        optimizer=torch.optim.AdamW(model.parameters(), 3e-3),
        dataset=Points(),
        loss=classify,
        validation=Points(30, seed=3),
        score=lambda model, batch: (model(batch[0]).argmax(1) == batch[1]).sum(),
        keep_best="max",
        stateful={"patience": patience},
        on_evaluation=patience.judge,
    )
"""
