"""Lightning's Trainer on Tidewater: ``Trainer(strategy=ElasticStrategy())``. README.md says what holds.

strategy    the strategy, which makes each step
loops       the loop over the epochs, and the steps of one
link        between the loops and the session
place       where the loops are, in the state that a newcomer gets
writing     loggers and the progress bar, in one worker
arguments   which arguments of the Trainer can be used
refusals    which modules and loaders can't be used
"""

from __future__ import annotations

from tidewater_lightning.strategy import ElasticStrategy

__all__ = ["ElasticStrategy"]
