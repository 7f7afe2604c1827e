"""The model of a job on its parameter servers, as the loop uses it.

    parameters = Remote(client, model, job.get_model_steps)
    parameters.prepare(spec.optimizer)
    version = parameters.pull()

The client waits for a server that is away, and sends the model to one that came back without it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import torch

from elasticdl import layers
from elasticdl.ps.checkpoint import Model
from elasticdl.ps.client import PsClient
from elasticdl.worker.parameters import Gradients
from elasticdl.worker.step import buffers
from elasticdl.zoo.optimizers import Optimizer


class Rows:
    """The rows of the embedding tables on the servers: an `EmbeddingSource` of the module's layers."""

    def __init__(self, client: PsClient) -> None:
        self._client = client
        self.snapshot = 0
        """The snapshot that rows are read from; 0: the current values."""

    def pull(self, name: str, ids: torch.Tensor) -> torch.Tensor:
        """See `EmbeddingSource`."""
        return self._client.pull_rows(name, ids, snapshot=self.snapshot)


class Remote:
    """`Parameters` on parameter servers."""

    def __init__(self, client: PsClient, model: torch.nn.Module, get_model_steps: int = 1) -> None:
        """Take the parts; nothing is sent yet.

        Args:
            client: of the servers. The caller closes it.
            model: into which values are pulled. Its embedding layers get their rows from the servers.
            get_model_steps: minibatches from one pull of the dense parameters to the next.
        """
        self._client, self._model, self._every = client, model, get_model_steps
        self._rows = Rows(client)
        self._parameters = dict(model.named_parameters())
        saved = buffers(model)
        self._buffers = {name: buffer for name, buffer in model.named_buffers() if name in saved}
        self._left = 0
        """Minibatches that may still use what was pulled last."""
        self._loaded = 0
        """The snapshot that the module's values are from; 0: the newest."""
        self._strayed = False
        """Whether the module has values that no server has."""
        self._optimizer: torch.optim.Optimizer | None = None

    def prepare(self, optimizer: Optimizer) -> None:
        """Give the servers this module's values unless they have some; then have theirs.

        Raises:
            PushRefused: they have another model; says which parameter differs.
        """
        layers.attach(self._model, self._rows)
        tables = layers.tables(self._model).values()
        if self._every > 1:
            self._optimizer = optimizer.torch(self._parameters.values())
        self._client.init_model(self._parameters, tables, optimizer, self._buffers)
        self.pull()

    def pull(self) -> int:
        """See `Parameters`."""
        if self._left <= 0 or self._loaded:
            self._load(self._client.pull_dense(everything=bool(self._loaded) or self._strayed))
            self._left, self._loaded, self._strayed = self._every, 0, False
        self._left -= 1
        return max(0, self._client.version)

    def push(self, minibatch: int, gradients: Gradients, learning_rate: float) -> bool:
        """See `Parameters`."""
        rows = {each.name: (each.ids.cpu(), each.rows.cpu()) for each in gradients.rows}
        accepted = self._client.push_gradients(
            minibatch, gradients.dense, rows, lr=learning_rate, buffers=gradients.buffers
        )
        if not all(accepted):
            self._left = 0
        elif self._left and self._optimizer:
            self._go_on_alone(self._optimizer, learning_rate)
        return all(accepted)

    @contextlib.contextmanager
    def snapshot(self, version: int) -> Iterator[None]:
        """See `Parameters`."""
        if version != self._loaded or not version or self._strayed:
            self._load(self._client.pull_dense(snapshot=version, everything=True))
        self._loaded, self._strayed, self._rows.snapshot = version, False, version
        try:
            yield
        finally:
            self._rows.snapshot = 0

    def idle(self) -> None:
        """See `Parameters`. At the end of a job no worker pushes gradients, and the master waits for all servers."""
        self._left = 0
        self.pull()

    def whole(self) -> Model:
        """See `Parameters`."""
        return self._client.pull_model()

    def _go_on_alone(self, optimizer: torch.optim.Optimizer, learning_rate: float) -> None:
        """Use this worker's own gradients, which the module still has, until the next pull, as ElasticDL does.

        Otherwise the same step would be made as often as there are minibatches from one pull to the next.
        """
        for group in optimizer.param_groups:
            group["lr"] = learning_rate
        optimizer.step()
        self._strayed = True

    def _load(self, values: Mapping[str, torch.Tensor]) -> None:
        with torch.no_grad():
            for name, value in values.items():
                target = self._parameters.get(name)
                (self._buffers[name] if target is None else target).copy_(value)
