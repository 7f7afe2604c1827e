"""The library's progress bar, for workers that come and go: the one that writes shows it."""

from __future__ import annotations

from typing import Any

from transformers.trainer_callback import ProgressCallback


class Bar(ProgressCallback):
    """A progress bar that a worker begins when it is the first time the one that writes."""

    training_bar: Any

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Show the step."""
        if state.is_world_process_zero and self.training_bar is None:
            super().on_train_begin(args, state, control, **more)
        super().on_step_end(args, state, control, **more)

    def on_train_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Close the bar if there is one."""
        if self.training_bar is not None:
            self.training_bar.close()
            self.training_bar = None
