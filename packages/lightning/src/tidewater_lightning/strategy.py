"""A strategy of Lightning with which each worker is a trainer of its own, and the workers share every step."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from lightning.fabric.strategies.launchers.launcher import _Launcher
from lightning.pytorch.strategies import SingleDeviceStrategy
from lightning.pytorch.trainer.states import TrainerFn
from lightning.pytorch.utilities.rank_zero import rank_zero_only

from tidewater import Config, ConfigError, init
from tidewater.elastic.launch.device import own_device
from tidewater.elastic.script.entry import exit_code
from tidewater_lightning.arguments import given, refusals
from tidewater_lightning.link import Link
from tidewater_lightning.loops import ElasticFitLoop, transferred
from tidewater_lightning.writing import name_versions


class ElasticStrategy(SingleDeviceStrategy):
    """Trains with workers that may come and go.

    Args:
        config: What ``tidewater.init()`` returns; it is called if this is left out.
    """

    strategy_name = "elastic"

    def __init__(self, config: Config | None = None) -> None:
        self.config = config or init()
        super().__init__(own_device(os.environ))
        self.link: Link | None = None
        self.rank: Callable[[], int] = lambda: -1
        """Returns this worker's rank; -1 before it has joined."""
        self._replaced: Any = None

    def _configure_launcher(self) -> None:
        self._launcher = _Elastic(self.config)

    @property
    def is_global_zero(self) -> bool:
        """Whether this worker writes for the job."""
        return self.rank() == 0

    def training_step(self, batch: Any, *args: Any, **kwargs: Any) -> Any:
        """Compute the loss of the micro-batch that it is the turn of."""
        return super().training_step(batch if self._replaced is None else self._replaced, *args, **kwargs)

    def backward(self, closure_loss: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """Add the gradients of the micro-batch; with the last one of the step, sum them over the workers."""
        assert self.link is not None
        loss = self.precision_plugin.pre_backward(closure_loss, self.lightning_module)
        self.link.sums(loss)
        return self.precision_plugin.post_backward(loss, self.lightning_module)

    def optimizer_step(self, optimizer: Any, closure: Callable[[], Any], model: Any = None, **kwargs: Any) -> Any:
        """Make the whole step, with as many micro-batches and repetitions as it takes."""
        link, module = self.link, self.lightning_module
        assert link is not None
        zeroes = module.trainer.fit_loop.epoch_loop.automatic_optimization.optim_progress.optimizer.zero_grad
        optimizer.zero_grad = _nothing  # the runtime does it before every step
        try:
            result = closure()
            counted = zeroes.state_dict()
            while not link.stands:
                self._replaced = transferred(module.trainer, link.again())
                result = closure()
            zeroes.load_state_dict(counted)
        finally:
            self._replaced = None
            del optimizer.zero_grad
        self.precision_plugin._after_closure(module, optimizer)
        optimizer.step(**kwargs)
        link.applied()
        return result


def _nothing(set_to_none: bool = True) -> None:
    """Do nothing, in place of a method."""


class _Elastic(_Launcher):
    """Checks the trainer before anything is set up, and gives it the loop."""

    is_interactive_compatible = False

    def __init__(self, config: Config) -> None:
        self._config = config

    def launch(self, function: Callable[..., Any], *args: Any, trainer: Any, **kwargs: Any) -> Any:
        """Call the trainer's function. Raise SystemExit, with a sentence, if it can't train with these options."""
        if trainer.state.fn != TrainerFn.FITTING:
            return function(*args, **kwargs)
        try:
            problems = refusals(given(trainer, args), self._config)
            if problems:
                raise ConfigError("; ".join(problems))
            rank_zero_only.rank = 1  # no worker writes before it has joined
            name_versions(trainer.loggers, self._config.job)
            trainer._signal_connector.register_signal_handlers = _nothing  # the session handles signals
            trainer.fit_loop = ElasticFitLoop(trainer.fit_loop, self._config)
            return function(*args, **kwargs)
        except ConfigError as error:
            raise SystemExit(exit_code(error)) from error

    def kill(self, number: int) -> None:
        """Do nothing: there are no processes."""
