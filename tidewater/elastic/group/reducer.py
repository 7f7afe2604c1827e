"""Sums the gradients of a model over the ranks, while the backward pass still computes others.

    reducer = Reducer(group, model.named_parameters(), load=lambda: [5])
    reducer.reset(passes=2)                             # each step begins with this
    ...                                                 # backward passes of all micro-batches but the last
    reducer.watch()
    torch.autograd.backward(loss)                       # starts the sum of each bucket when its gradients are there
    reducer.flush([ballot])                             # starts the others
    (ballot,) = reducer.sums()                          # raises GroupBroken; then the gradients are invalid

It is used in place of DistributedDataParallel, which has an undefined state after an exception in a backward pass,
requires that all parameters get a gradient, divides a compiled model into parts, and keeps a second copy of the
gradients when its communication hook may not write to its buckets.

All ranks start the sums of the same buckets in the same order. A rank may start the first ones early, during the
backward pass, or all at its end, as it fits. The last one is always started at the end. It has a tail: the numbers
that the caller sends with the gradients, and for each parameter how many ranks have a gradient for it. A seal (see
``ballot``) shows whether what arrived is the sum of all ranks, before anything is decided by it. A parameter for
which no rank has one keeps None, so that the optimizer skips it, as in training with one process. Where only some have
one, the others add zeros.

The sums are not divided by the number of ranks, because ranks weight their loss by their share of the step.

Gradients of 16 bits are summed in copies of 32 bits, unless ``sum_dtype`` says otherwise, and those of 32 bits with
``sum_dtype`` in copies of 16. At most two copies exist at a time. One of 32 bits has 50 MiB, or more if a single
parameter is larger. With other gradients, the memory is that of the gradients, and is kept for the next step.
Several micro-batches add their gradients in that memory, so they need no more of it than one.

Alone in its group, a rank on the CPU keeps the gradients where they are, and releases that memory. In a ``rehearsal``
it sums them nevertheless, to find out whether it can, and whether there is enough memory for a group of several.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from tidewater.elastic.errors import ConfigError
from tidewater.elastic.group import buckets
from tidewater.elastic.group.ballot import SEAL, numbers, seal
from tidewater.elastic.group.buckets import Bucket, Memory, Named
from tidewater.elastic.group.group import Group
from tidewater.elastic.sharding import is_divided

_MOST_IDLE = 100
_COPIES = 2
"""Most sums in copies at a time: while one is sent, the next is prepared."""


class Reducer:
    """The sums of the gradients of ``parameters`` in the current generation of ``group``. For one thread.

    ``load`` returns the lengths of what is sent with them, ``sum_dtype`` is a type of 16 bits in which they are summed,
    or None. ``copies`` says whether gradients are given in memory that must not become theirs. Parameters that do not
    require a gradient now must not get one later; ``flush`` raises ConfigError then.
    """

    def __init__(
        self,
        group: Group,
        parameters: Iterable[Named],
        load: Callable[[], Sequence[int]] = tuple,
        sum_dtype: torch.dtype | None = None,
        *,
        copies: bool = False,
    ) -> None:
        named = list(parameters)
        self._group = group
        self._all = [parameter for _, parameter in named]
        self._frozen = [each for each in named if not each[1].requires_grad]
        trained = [each for each in named if each[1].requires_grad]
        self._buckets = buckets.assign(
            trained, group.device, first_bytes=buckets.FIRST_BYTES, most_bytes=buckets.BYTES, sum_dtype=sum_dtype
        )
        self._load, self._counted = load, SEAL + len(trained) + 1
        in_place = all(bucket.in_place for bucket in self._buckets)
        self._can_keep = group.device.type == "cpu" and in_place and not copies
        """Whether a rank that is alone can do without copies of its gradients."""
        self._kept: Sequence[torch.Tensor] | None = None
        """What would be sent with the gradients, if this rank is alone and keeps them."""
        self._keeps = False
        self._rehearses = False
        self._early = self._buckets[:-1]
        """The sums of these buckets may start during the backward pass."""
        self._watching = False
        self._idle = 0
        """The number of steps without any gradient since the start; -1 once there was one."""
        self._begun: list[tuple[Any, Bucket, Memory]] = []
        """Sums that have been started and not completed, in order."""
        self._finished: list[tuple[Bucket, Memory]] = []
        self._local: list[Sequence[torch.Tensor | None]] = []
        """This rank's gradients, on the CPU only. Freed one by one during the backward pass, their memory would go back
        to the kernel, which zeroes it for the next pass; that takes as long as the sum. Not those of a divided model:
        a process has such a model because memory is short."""
        self._retains = group.device.type == "cpu" and not is_divided(self._all)
        self._usual = (-1, torch.empty(0))
        """A generation, and the usual numbers sent with its gradients: every parameter has one, and none is late."""
        for bucket in self._early:
            for parameter in bucket.parameters:
                register: Any = parameter.register_post_accumulate_grad_hook  # torch has no type for it
                register(self._hook(bucket))

    def reset(self, passes: int = 1) -> None:
        """Forget all gradients, and the last step if it has failed. ``passes`` is how many the next step has."""
        self._watching, self._begun, self._finished, self._local = False, [], [], []
        self._keeps = self._can_keep and self._group.size == 1 and not self._rehearses
        self._kept = None
        # Not with optimizer.zero_grad, which is slower and skips parameters that the optimizer doesn't have.
        for parameter in self._all:
            parameter.grad = None
        self._buckets[-1].expect([*self._load(), self._counted])
        for bucket in self._buckets:
            if self._keeps:
                bucket.release()
            elif passes > 1:
                bucket.accumulate()

    @contextlib.contextmanager
    def rehearsal(self) -> Iterator[None]:
        """Give a context in which a rank that is alone sums its gradients, too."""
        self._rehearses = True
        try:
            yield
        finally:
            self._rehearses = False

    def watch(self) -> None:
        """Start sums during the next backward pass, which is the last one of the step."""
        self._watching = True
        for bucket in self._early:
            bucket.arrivals = 0

    def flush(self, load: Sequence[torch.Tensor]) -> None:
        """Start the remaining sums, and send ``load`` (float32, one dimension each) with the last one.

        Raise ConfigError if a gradient is sparse or its parameter did not require one when the reducer was made.
        """
        for name, parameter in self._frozen:
            if parameter.grad is not None:
                raise ConfigError(
                    f"the parameter {name} has a gradient, but did not require one when training began: freeze it "
                    "only after that, in on_step"
                )
        late = False
        if self._watching:
            self._watching = False
            late = any(bucket.arrivals > bucket.expected for bucket in self._early[: self._started()])
            for bucket in self._early:
                bucket.expected = max(bucket.expected, bucket.arrivals)
        if self._keeps:
            self._kept = load
        else:
            self._start_rest(load, late=late)

    def sums(self) -> Sequence[torch.Tensor]:
        """Wait for the sums over all ranks, and make them the gradients. A collective call.

        Return the sums of the load, one for each part. They and the gradients are valid until the next ``flush``.

        Raise GroupBroken if a sum is missing: then the gradients are invalid. A step in which no rank has any gradient
        leaves None everywhere. Raise ConfigError if that was so in all of the first steps.
        """
        if self._kept is not None:
            return self._own(self._kept)
        load, counts = self._complete()
        if counts.pop():
            counts = [one + other for one, other in zip(counts, self._sum_late_parts(), strict=True)]
        self._refuse_idle(any(counts))
        known = iter(counts)
        for bucket, memory in self._finished:
            bucket.keep(memory)
            for parameter, gradient in zip(bucket.parameters, memory.given, strict=True):
                parameter.grad = gradient if next(known) else None
        return load

    def _own(self, load: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        """Do the same where this rank is alone."""
        self._group.check()
        found = [bucket.has_own() for bucket in self._buckets]  # of each, also after the first
        self._refuse_idle(any(found))
        return load

    def _refuse_idle(self, trains: bool) -> None:
        """Raise ConfigError if there has been no gradient in many steps since the start."""
        self._idle = -1 if trains or self._idle < 0 else self._idle + 1
        if self._idle == 1:
            warnings.warn("no gradient was computed in a step: its loss depends on no parameter", stacklevel=2)
        if self._idle == _MOST_IDLE:
            raise ConfigError(
                f"no gradient was computed in {_MOST_IDLE} steps: the loss depends on none of the model's parameters"
            )

    def _hook(self, bucket: Bucket) -> Callable[[torch.Tensor], None]:
        def arrived(_: torch.Tensor) -> None:
            bucket.arrivals += 1
            if bucket.arrivals == bucket.expected and self._watching and not self._keeps:
                self._start_expected()

        return arrived

    def _start_expected(self) -> None:
        """Start the sums of the next buckets that have got as many gradients as in the passes before."""
        for bucket in self._early[self._started() :]:
            if bucket.arrivals < bucket.expected or not bucket.expected:
                return
            self._start(bucket)

    def _started(self) -> int:
        return len(self._begun) + len(self._finished)

    def _start_rest(self, load: Sequence[torch.Tensor], *, late: bool) -> None:
        for bucket in self._early[self._started() :]:
            self._start(bucket)
        self._start(self._buckets[-1], lambda: [*load, self._counts(late=late)])

    def _start(self, bucket: Bucket, tail: Callable[[], list[torch.Tensor]] = list) -> None:
        gradients = bucket.take()
        if self._retains:
            self._local.append(gradients)
        self._limit_copies()
        memory, values = bucket.fill(gradients, tail())
        self._begun.append((self._group.begin(values), bucket, memory))

    def _limit_copies(self) -> None:
        """Wait until there is memory for one more copy of gradients."""
        while sum(not memory.in_place for _, _, memory in self._begun) >= _COPIES:
            work, bucket, memory = self._begun.pop(0)
            self._group.complete([work])
            memory.finish()
            self._finished.append((bucket, memory))

    def _counts(self, *, late: bool) -> torch.Tensor:
        """Return the generation's seal, a number for each parameter, 1 if it has a gradient, and one more for whether
        some are late."""
        usual, uuid = all(all(bucket.had) for bucket in self._buckets) and not late, self._group.uuid
        if usual and self._usual[0] == uuid:
            return self._usual[1]
        had = [float(one) for bucket in self._buckets for one in bucket.had]
        counts = numbers([*seal(uuid), *had, float(late)], self._group.device)
        if usual:
            self._usual = uuid, counts
        return counts

    def _complete(self) -> tuple[Sequence[torch.Tensor], list[float]]:
        """Wait for all sums. Return those of the load, and the counts without their seal, which has been verified."""
        self._group.check()
        self._group.complete([work for work, _, _ in self._begun])
        tail: Sequence[torch.Tensor] = ()
        for _, bucket, memory in self._begun:
            tail = memory.finish()
            self._finished.append((bucket, memory))
        self._begun = []
        return tail[:-1], list(self._group.opened(tail[-1].tolist()))

    def _sum_late_parts(self) -> list[float]:
        """Add the parts of gradients that came after the sum of their bucket had started. Return their counts.

        All ranks do this if one has such parts. The next time, that rank waits for them.
        """
        first, self._finished = self._finished, []
        self._start_rest((), late=False)
        _, counts = self._complete()
        for (_, memory), (_, more) in zip(first, self._finished, strict=True):
            if memory.gradients:
                torch._foreach_add_(memory.gradients, more.gradients)
        self._finished = first
        return counts[:-1]
