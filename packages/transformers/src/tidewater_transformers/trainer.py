"""Hugging Face's Trainer, with a session of the runtime as its loop.

All that concerns samples, gradients, steps and recovery is the runtime's. What the library does around a step is done
by its own methods, see ``course``.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import torch
import transformers
from transformers.trainer_callback import ProgressCallback
from transformers.trainer_utils import TrainOutput, rotate_checkpoints

import tidewater
from tidewater.elastic.script.entry import end_without_model, exit_code
from tidewater_transformers import arguments
from tidewater_transformers.bar import Bar
from tidewater_transformers.course import Course

_OWN_LOOP = ("training_step", "get_batch_samples", "_run_epoch", "_get_train_sampler", "get_train_dataloader")
"""Methods of the library's loop that are not called, or asked only for the dataset and the collator."""


class Trainer(transformers.Trainer):
    """The library's Trainer, as one of several workers that may come and go.

    Args:
        model: As the library's, and so are all others but the last one.
        args: ``TrainingArguments``. The batch of a step, of all workers together, is that of a plain Trainer in one
            process: ``per_device_train_batch_size`` times ``gradient_accumulation_steps`` samples.
        more: Further arguments of the library's Trainer.
        config: What ``tidewater.init()`` has returned.
        named: Further arguments of the library's Trainer.

    Raises:
        SystemExit: Something can't be honoured; the sentences are on standard error (exit code 2).
    """

    def __init__(self, model: Any = None, args: Any = None, *more: Any, config: tidewater.Config, **named: Any) -> None:
        args = args or transformers.TrainingArguments("tmp_trainer")
        plain = transformers.TrainingArguments(args.output_dir)
        args._n_gpu = min(args.n_gpu, 1)  # a worker has one; with more, the library would use DataParallel
        _refuse_any([*arguments.refusals(args, plain, gpu=torch.cuda.is_available()), *self._overridden()])
        self._config = config
        self._draft: str | None = None
        super().__init__(model, args, *more, **named)
        if any(type(each) is ProgressCallback for each in self.callback_handler.callbacks):
            self.remove_callback(ProgressCallback)
            self.add_callback(Bar)

    def train(
        self,
        resume_from_checkpoint: str | bool | None = None,
        trial: Any = None,
        ignore_keys_for_eval: list[str] | None = None,
    ) -> TrainOutput:
        """Train until the job is finished. Continue from the runtime's own checkpoint if there is one.

        Raises:
            SystemExit: This worker leaves (143), the job has finished before, or without this worker (0), or something
                is wrong (2, or 1); the sentence is on standard error.
        """
        if isinstance(resume_from_checkpoint, str):
            _refuse(
                f"trainer.train(resume_from_checkpoint={resume_from_checkpoint!r}): training continues from the newest "
                "checkpoint in --checkpoints by itself; to begin with the weights of another one, build the model with "
                "from_pretrained()"
            )
        if trial is not None:
            _refuse("a search of hyperparameters makes many trainings, and a process is a worker of one job")
        return super().train(None, None, ignore_keys_for_eval)

    def is_world_process_zero(self) -> bool:
        """Return whether this worker logs and saves for the job."""
        return bool(self.state.is_world_process_zero) if hasattr(self, "state") else True

    is_local_process_zero = is_world_process_zero

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Save the model as the library does, in the worker that writes for the job."""
        if self.is_world_process_zero():
            super().save_model(output_dir, _internal_call)

    def _inner_training_loop(
        self,
        batch_size: int | None = None,
        args: Any = None,
        resume_from_checkpoint: str | None = None,
        trial: Any = None,
        ignore_keys_for_eval: list[str] | None = None,
    ) -> TrainOutput:
        self.accelerator.free_memory()
        loader = self.get_train_dataloader()
        if isinstance(loader.dataset, torch.utils.data.IterableDataset):
            _refuse(
                f"train_dataset is a {type(loader.dataset).__name__}, an IterableDataset: give one with a length and "
                "an index: with these the runtime uses every sample once per epoch at any number of workers"
            )
        epochs, steps_in_epoch, _, samples, _, _, max_steps = self.set_initial_training_values(self.args, loader)
        config = self._settings(epochs, max_steps)
        self._init_training_state(max_steps, steps_in_epoch, epochs, None, None)
        self._prepare_objects(max_steps, loader)
        started = time.time()
        course = Course(self, len(loader), ignore_keys_for_eval, started)
        with tidewater.session(config, **self._training(loader, course)) as run:
            for batch in run.batches():
                course.rank = run.rank
                run.step(lambda batch=batch: self._weighted_loss(batch))
        if not run.has_final_state:
            end_without_model()
        course.end(writes=run.rank == 0)
        return self._finalize_training(None, samples, started)

    def _settings(self, epochs: int, max_steps: int) -> tidewater.Config:
        """Return the runtime's settings for this training."""
        wanted = arguments.settings(self.args, epochs=epochs, max_steps=max_steps)
        _refuse_any(arguments.contradictions(self._config, wanted))
        suggested = arguments.chosen(self._config, arguments.suggestions(self.args))
        return dataclasses.replace(self._config, **wanted, **suggested)

    def _prepare_objects(self, max_steps: int, loader: Any) -> None:
        """Make the optimizer, its scheduler and the sums of the logs, as the library does before its loop."""
        self.create_optimizer_and_scheduler(max_steps)
        if self.args.bf16 or self.args.fp16:  # as for the first evaluation, which would change the model's forward
            self.accelerator.prepare_model(self.model, device_placement=False, evaluation_mode=True)
        handler = self.callback_handler
        handler.model, handler.optimizer, handler.lr_scheduler = self.model, self.optimizer, self.lr_scheduler
        handler.train_dataloader = loader
        self._initial_num_input_tokens_seen = self._initial_global_step = self._globalstep_last_logged = 0
        self._tr_loss, self._total_loss_scalar = torch.tensor(0.0, device=self.args.device), 0.0
        self.model.train()

    def _training(self, loader: Any, course: Course) -> dict[str, Any]:
        """Return the fields of the session."""
        # The library steps these two with the metric of an evaluation.
        metered = isinstance(self.lr_scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau) or (
            type(self.lr_scheduler).__name__ == "GreedyLR"
        )
        return {
            "model": self.model,
            "optimizer": self.optimizer,
            "scheduler": () if metered else self.lr_scheduler,
            "dataset": loader.dataset,
            "collate": loader.collate_fn,
            "before_step": course.before_step,
            "on_step": course.on_step,
            "stateful": {"trainer": course, **({"scheduler": self.lr_scheduler} if metered else {})},
        }

    def _weighted_loss(self, batch: Mapping[str, Any]) -> Any:
        """Return the loss of a micro-batch: a mean over its samples, or a sum and its number of items (tokens)."""
        inputs = dict(batch)
        items = self._get_num_items_in_batch([inputs], self.args.device)
        with self.compute_loss_context_manager():
            if items is None:
                return self.compute_loss(self.model, inputs)
            # A mean as well: also of a method of the script's that doesn't look at the number.
            count = items.clamp(min=1)
            return self.compute_loss(self.model, inputs, num_items_in_batch=count) * count, items

    def _get_dataloader(self, *given: Any, **named: Any) -> Any:
        """Return a loader that reads in this process: one with processes would fork a worker with its connections."""
        args = self.args
        names = ("dataloader_num_workers", "dataloader_persistent_workers", "dataloader_prefetch_factor")
        kept = {name: getattr(args, name) for name in (*names, "dataloader_multiprocessing_context")}
        args.__dict__.update(dict.fromkeys(kept), dataloader_num_workers=0, dataloader_persistent_workers=False)
        try:
            return super()._get_dataloader(*given, **named)
        finally:
            args.__dict__.update(kept)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Write the library's checkpoint in the worker that writes, as a whole or not at all."""
        state, final = self.state, self._get_output_dir(trial)
        if state.best_global_step == state.global_step:  # an earlier best step that was not saved has no folder
            state.best_model_checkpoint = os.path.join(final, f"checkpoint-{state.best_global_step}")
        if not self.is_world_process_zero():
            return
        self._draft = os.path.join(final, f".draft-{uuid.uuid4()}")
        best = state.best_model_checkpoint
        try:
            super()._save_checkpoint(model, trial)
            name = f"checkpoint-{state.global_step}"
            state.best_model_checkpoint = best
            state.save_to_json(os.path.join(self._draft, name, "trainer_state.json"))
            target = Path(final, name)
            shutil.rmtree(target, ignore_errors=True)  # of a step that is repeated after the loss of all workers
            Path(self._draft, name).rename(target)
        finally:
            shutil.rmtree(self._draft, ignore_errors=True)
            self._draft = None
        rotate_checkpoints(
            output_dir=final,
            save_total_limit=self.args.save_total_limit,
            best_model_checkpoint=best,
            use_mtime=True,
        )

    def _finalize_training(self, trial: Any, num_train_samples: int, start_time: float) -> TrainOutput:
        """Load the best model and end the callbacks, as the library does. Only the worker that writes deletes."""
        state, args, limit = self.state, self.args, self.args.save_total_limit
        if not os.path.isdir(state.best_model_checkpoint or ""):  # the worker that saved it may have been lost
            state.best_model_checkpoint = None
        if not self.is_world_process_zero():
            args.save_total_limit = None
        try:
            return super()._finalize_training(trial, num_train_samples, start_time)
        finally:
            args.save_total_limit = limit

    def _get_output_dir(self, trial: Any) -> str:
        return self._draft or str(super()._get_output_dir(trial))

    def _overridden(self) -> list[str]:
        """Return a sentence for each method of the script's own that wouldn't be called."""
        return [
            f"{type(self).__name__}.{name}() would have no effect, since the runtime chooses the samples and makes the "
            "steps: override compute_loss(), or use callbacks"
            for name in _OWN_LOOP
            if getattr(type(self), name) is not getattr(transformers.Trainer, name)
        ]


def _refuse_any(sentences: list[str]) -> None:
    if sentences:
        _refuse("; ".join(sentences))


def _refuse(sentence: str) -> NoReturn:
    """End the worker, which has not joined, with the sentence on standard error."""
    raise SystemExit(exit_code(tidewater.ConfigError(sentence)))
