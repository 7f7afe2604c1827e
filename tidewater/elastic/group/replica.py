"""The processes of one worker that divide a model act as one: they vote on what each of them may meet alone.

    with replica.sharing():             # a GroupBroken of this process reaches the others at their next vote
        sums = group.tally(values)
        replica.vote()                  # raises GroupBroken on all of them or on none
    total = replica.sum([loss])         # only right after a vote that has succeeded

Each process sums with its counterparts in other workers, in a group of its own, and any of these groups may fail alone.
A process with a failure votes no, exactly once. A vote in which another has voted no raises ``Parted``.
So it doesn't matter at which of their votes the others are: all have left what they did together.

If one of the processes ends, the launcher ends the others: an error of these calls is no GroupBroken. So there is no
limit to a wait for one that lives; what a worker waits for is in the event ``silent``, see ``peer.silence``. Where the
script's code decides whether a process comes, all meet first, with a limit.
"""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from tidewater.elastic.errors import GroupBroken, TrainerError
from tidewater.elastic.group.mesh import further_sum, meet_again


class Parted(GroupBroken):
    """Another process of this worker has met a failure, and all of them know of it."""


class Replica:
    """This process and the others of its worker. For one thread.

    Args:
        index: Of this process.
        size: Number of processes.
        add: Adds a tensor of all of them, in place.
        meet: Waits until all of them have come to a place of the script; raises TrainerError after so many seconds.
    """

    def __init__(
        self, index: int, size: int, add: Callable[[torch.Tensor], object], meet: Callable[[str, float], None]
    ) -> None:
        self.index, self.size, self._add, self.meet = index, size, add, meet

    @classmethod
    def opened(cls, index: int, size: int, worker: str) -> Replica:
        """Return that of the processes of torch's default group. All of them must call this. Raise TrainerError."""
        # Not the default group: the collectives of the model may still run there.
        sum_up = further_sum((index, size), worker)

        def add(tensor: torch.Tensor) -> None:
            try:
                sum_up(tensor)
            except RuntimeError as error:
                raise TrainerError(
                    f"another process of this worker has ended, and all of them start again ({error})"
                ) from error

        return cls(index, size, add, functools.partial(meet_again, who=(index, size), worker=worker))

    def vote(self, *, fails: bool = False, says: bool = False) -> bool:
        """Return whether any process ``says`` so, if none has met a failure. Raise Parted on the others if one has."""
        failures, saying = self.sum([float(fails), float(says)])
        if failures and not fails:
            raise Parted("another process of this worker has given the group up")
        return saying > 0

    @contextlib.contextmanager
    def sharing(self) -> Iterator[None]:
        """Give a context in which a GroupBroken of this process becomes one of all: ``Parted``."""
        try:
            yield
        except Parted:
            raise
        except GroupBroken as error:
            self.vote(fails=True)
            raise Parted(str(error)) from error

    def sum(self, values: Sequence[float]) -> list[float]:
        """Return the sums over the processes. All must give equally many."""
        numbers = torch.tensor(list(values), dtype=torch.float64)
        self._add(numbers)
        return list(numbers.tolist())

    def first(self, value: Any = None) -> Any:
        """Return what the first process gives: None, or a value for JSON."""
        data = b"" if self.index else json.dumps(value).encode()
        (length,) = self.sum([len(data)])
        memory = torch.zeros(int(length), dtype=torch.uint8)
        if data:
            memory.copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8))
        self._add(memory)
        return json.loads(memory.numpy().tobytes())

    def each(self, value: Any) -> list[Any]:
        """Return what each process gives, by index: a value for JSON."""
        data = json.dumps(value).encode()
        longest = int(max(length for (length,) in self.gathered([len(data)])))
        rows = self.gathered(data.ljust(longest))  # JSON may end with spaces
        return [json.loads(bytes(map(int, row))) for row in rows]

    def gathered(self, values: Sequence[float]) -> list[list[float]]:
        """Return what each process gives, by index. All must give equally many."""
        width = len(values)
        table = [0.0] * width * self.size
        table[self.index * width : (self.index + 1) * width] = values
        sums = self.sum(table)
        return [sums[index * width : (index + 1) * width] for index in range(self.size)]
