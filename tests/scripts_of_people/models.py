"""Models as people write them: what they keep in buffers, what they freeze, share and draw."""

from __future__ import annotations

SCRIPTS: dict[str, str] = {}

SCRIPTS["clip"] = """
class Clip(nn.Module):
    def __init__(self):
        super().__init__()
        self.image, self.text = nn.Linear(8, 6), nn.Linear(8, 6)
        self.logit_scale = nn.Parameter(torch.ones([]) * math.log(1 / 0.07))

    def forward(self, x):
        image, text = F.normalize(self.image(x), dim=-1), F.normalize(self.text(x.flip(1)), dim=-1)
        return self.logit_scale.exp() * image @ text.t()


def training(config):
    model = Clip()

    def loss(model, batch):
        logits = model(batch[0])
        labels = torch.arange(len(logits))
        return (F.cross_entropy(logits, labels) + F.cross_entropy(logits.t(), labels)) / 2

    @torch.no_grad()
    def on_step(report):
        model.logit_scale.clamp_(0, math.log(100))

    exclude = [each for each in model.parameters() if each.ndim < 2]
    include = [each for each in model.parameters() if each.ndim >= 2]
    groups = [{"params": exclude, "weight_decay": 0.0}, {"params": include, "weight_decay": 0.2}]
    optimizer = torch.optim.AdamW(groups, lr=5e-3, betas=(0.9, 0.98), eps=1e-6)
    return tidewater.Training(model=model, optimizer=optimizer, dataset=Points(), loss=loss, on_step=on_step)
"""

SCRIPTS["gpt"] = """
class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(width), nn.Linear(width, 3 * width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.drop = nn.Dropout(0.1)
        mask = torch.full((12, 12), float("-inf")).triu(1)
        self.register_buffer("bias", mask, persistent=False)

    def forward(self, x):
        q, k, v = self.attention(self.norm(x)).chunk(3, -1)
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1)) + self.bias[: x.size(1), : x.size(1)]
        x = x + self.drop(scores.softmax(-1) @ v)
        return x + self.mlp(x)


class Gpt(nn.Module):
    def __init__(self, words=16, width=16):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(12, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(2))
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight

    def forward(self, tokens):
        x = self.words(tokens) + self.places(torch.arange(tokens.size(1)))
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def training(config):
    model = Gpt()
    decayed = [each for each in model.parameters() if each.dim() >= 2]
    plain = [each for each in model.parameters() if each.dim() < 2]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}]
    return tidewater.Training(
        model=model,
        optimizer=torch.optim.AdamW(groups, lr=3e-3, betas=(0.9, 0.95)),
        schedule=lambda progress: 0.1 + 0.45 * (1 + math.cos(math.pi * progress)),
        before_step=lambda model: nn.utils.clip_grad_norm_(model.parameters(), 1.0),
        dataset=Tokens(),
        loss=lambda model, batch: F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten()),
    )
"""

SCRIPTS["dino"] = """
class Student(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone, self.head = nn.Linear(8, 16), nn.utils.parametrizations.weight_norm(nn.Linear(16, 6))
        self.register_buffer("center", torch.zeros(1, 6))

    def forward(self, x):
        return self.head(F.gelu(self.backbone(x)))


def training(config):
    student = Student()
    teacher = copy.deepcopy(student).requires_grad_(False)

    def loss(model, batch):
        with torch.no_grad():
            out = teacher(batch[0])
            target = ((out - model.center) / 0.04).softmax(-1)
            model.center = model.center * 0.9 + out.mean(0, keepdim=True) * 0.1
        return -(target * (model(batch[0] + 0.1 * torch.randn_like(batch[0])) / 0.1).log_softmax(-1)).sum(-1).mean()

    @torch.no_grad()
    def on_step(report):
        for mine, theirs in zip(teacher.parameters(), student.parameters()):
            mine.mul_(0.99).add_(theirs, alpha=0.01)

    return tidewater.Training(
        model=student,
        optimizer=torch.optim.SGD(student.parameters(), lr=0.05, momentum=0.9),
        dataset=Points(),
        loss=loss,
        stateful={"teacher": teacher},
        on_step=on_step,
    )
"""

SCRIPTS["gan"] = """
def training(config):
    model = nn.ModuleDict({"g": nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 8)), "d": mlp(classes=1)})

    def loss(model, batch):
        real = batch[0]
        fake = model["g"](torch.randn(len(real), 4))
        wrong = model["d"](fake.detach())
        critic = F.binary_cross_entropy_with_logits(model["d"](real), torch.ones(len(real), 1))
        critic = critic + F.binary_cross_entropy_with_logits(wrong, torch.zeros(len(real), 1))
        frozen = {name: each.detach() for name, each in model["d"].named_parameters()}
        fooled = torch.func.functional_call(model["d"], frozen, fake)
        return critic + F.binary_cross_entropy_with_logits(fooled, torch.ones(len(real), 1))

    optimizers = [torch.optim.Adam(model[name].parameters(), lr=2e-3, betas=(0.5, 0.999)) for name in "gd"]
    return tidewater.Training(model=model, optimizer=optimizers, dataset=Points(), loss=loss)
"""

SCRIPTS["frozen_batch_norm"] = """
def training(config):
    backbone = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU())
    backbone.requires_grad_(False).eval()
    backbone[1].running_mean.normal_()
    model = nn.Sequential(backbone, nn.Linear(16, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))
    parameters = [each for each in model.parameters() if each.requires_grad]
    return tidewater.Training(model=model, optimizer=torch.optim.SGD(parameters, 0.1), dataset=Points(), loss=classify)
"""

SCRIPTS["batch_norm_of_all_steps"] = """
def training(config):
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16, momentum=None), nn.ReLU(), nn.Linear(16, 3))
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, nesterov=True)
    return tidewater.Training(model=model, optimizer=optimizer, dataset=Points(), loss=classify)
"""

SCRIPTS["lstm"] = """
class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(16, 8, padding_idx=0)
        self.lstm = nn.LSTM(8, 12, num_layers=2, dropout=0.2, batch_first=True)
        self.out = nn.Linear(12, 16)

    def forward(self, tokens):
        return self.out(self.lstm(self.words(tokens))[0])


def training(config):
    model = Tagger()

    def loss(model, batch):
        targets = batch[:, 1:]
        sums = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), targets.flatten(), ignore_index=0, reduction="sum")
        return sums, (targets != 0).sum()

    return tidewater.Training(
        model=model,
        optimizer=torch.optim.RMSprop(model.parameters(), lr=2e-3, momentum=0.5, centered=True),
        before_step=lambda model: nn.utils.clip_grad_value_(model.parameters(), 0.5),
        dataset=Tokens(),
        loss=loss,
    )
"""

SCRIPTS["rotary"] = """
class Rotary(nn.Module):
    def __init__(self):
        super().__init__()
        angles = torch.outer(torch.arange(12.0), 10000 ** (-torch.arange(0, 8, 2) / 8))
        self.register_buffer("freqs_cis", torch.polar(torch.ones_like(angles), angles))
        self.register_buffer("offsets", torch.arange(12) + 2**40)
        self.words, self.out = nn.Embedding(16, 8), nn.Linear(8, 16)

    def forward(self, tokens):
        x = torch.view_as_complex(self.words(tokens).unflatten(-1, (4, 2)))
        x = torch.view_as_real(x * self.freqs_cis[: tokens.size(1)]).flatten(-2)
        return self.out(x.cumsum(1) + (self.offsets[: tokens.size(1), None] - 2**40))


def training(config):
    model = Rotary()
    return tidewater.Training(
        model=model,
        optimizer=torch.optim.NAdam(model.parameters(), lr=2e-3),
        dataset=Tokens(),
        loss=lambda model, batch: F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten()),
    )
"""

SCRIPTS["counts"] = """
class Balanced(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = mlp()
        self.register_buffer("seen", torch.zeros(3, dtype=torch.long))
        self.register_buffer("total", torch.zeros((), dtype=torch.float64))
        self.register_buffer("ever", torch.zeros(3, dtype=torch.bool))

    def forward(self, x):
        return self.net(x)


def training(config):
    model = Balanced()

    def loss(model, batch):
        counts = torch.bincount(batch[1], minlength=3)
        model.seen += counts
        model.total += batch[0].double().sum()
        model.ever |= counts > 0
        return F.cross_entropy(model(batch[0]), batch[1], label_smoothing=0.1)

    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    return tidewater.Training(model=model, optimizer=optimizer, dataset=Points(), loss=loss)
"""

SCRIPTS["vq_vae"] = """
class Codebook(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(8, 4), nn.Linear(4, 8)
        self.register_buffer("codes", torch.randn(6, 4))
        self.register_buffer("sizes", torch.ones(6))

    def forward(self, x):
        z = self.encoder(x)
        chosen = F.one_hot(torch.cdist(z, self.codes).argmin(1), 6).float()
        with torch.no_grad():
            self.sizes.mul_(0.9).add_(chosen.sum(0), alpha=0.1)
            self.codes = self.codes.lerp(chosen.t() @ z / (self.sizes[:, None] + 1e-5), 0.05)
        code = chosen @ self.codes
        return self.decoder(z + (code - z).detach()), F.mse_loss(z, code)


def training(config):
    model = Codebook()

    def loss(model, batch):
        again, commitment = model(batch[0])
        return F.mse_loss(again, batch[0]) + 0.25 * commitment

    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    return tidewater.Training(model=model, optimizer=optimizer, dataset=Points(), loss=loss)
"""

SCRIPTS["stochastic_depth"] = """
class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 3)
        self.blocks = nn.ModuleList(nn.utils.parametrizations.spectral_norm(nn.Linear(16, 16)) for _ in range(3))

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            if not self.training or random.random() > 0.2:
                x = x + torch.tanh(block(x)) * (torch.rand(len(x), 1) > 0.1)
        return self.last(x)


def training(config):
    model = Deep()
    optimizer = torch.optim.Adamax(model.parameters())
    return tidewater.Training(model=model, optimizer=optimizer, dataset=Points(), loss=classify)
"""

SCRIPTS["checkpointed_activations"] = """
from torch.utils.checkpoint import checkpoint


class Saved(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.2), nn.ReLU())
        self.last = nn.Linear(16, 3)

    def forward(self, x):
        return self.last(checkpoint(self.first, x, use_reentrant=False))


def training(config):
    model = Saved()
    optimizer = torch.optim.RAdam(model.parameters())
    return tidewater.Training(model=model, optimizer=optimizer, dataset=Points(), loss=classify)
"""

SCRIPTS["complex_and_double"] = """
class Waves(nn.Module):
    def __init__(self):
        super().__init__()
        self.wave = nn.Parameter(torch.randn(8, 3, dtype=torch.complex64) * 0.1)
        self.scale = nn.Parameter(torch.ones(3, dtype=torch.float64))

    def forward(self, x):
        return (x.to(torch.complex64) @ self.wave).abs() * self.scale


def training(config):
    model = Waves()
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    return tidewater.Training(model=model, optimizer=optimizer, dataset=Points(), loss=classify)
"""
