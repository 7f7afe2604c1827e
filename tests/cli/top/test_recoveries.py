"""A recovery is counted once, however late the processes that have counted it are read."""

from __future__ import annotations

from tests.cli.top.objects import PORT
from tidewater.cli.top.recoveries import Behind, behind, recovered
from tidewater.cli.top.sampling import Process
from tidewater.cli.top.scrape import Reading, Recoveries


class Story:
    """Three processes; each look reads some of them."""

    def __init__(self) -> None:
        self._readings: dict[Process, Reading] = {}
        self._late: dict[Process, Behind] = {}
        self._look = 0

    def look(self, **lost: int) -> dict[str, Recoveries]:
        """Read processes that have counted so many recoveries of half a second each; return the new ones."""
        self._look += 1
        read = {
            (name, PORT): Reading(at=self._look, steps=self._look, recoveries={"lost": Recoveries(count, count / 2)})
            for name, count in lost.items()
        }
        now = {**self._readings, **read}
        new = recovered(self._readings, now, self._late)
        self._late = behind(self._readings, now, self._late, new)
        self._readings = now
        return new


def test_a_process_that_is_read_later_does_not_count_it_again() -> None:
    story = Story()
    story.look(a=0, b=0, c=0)
    assert story.look(a=1) == {"lost": Recoveries(1, 0.5)}
    assert story.look(a=1, b=1) == {}
    assert story.look(a=2) == {"lost": Recoveries(1, 0.5)}
    assert story.look(b=2) == {}
    assert story.look(c=3) == {"lost": Recoveries(1, 0.5)}, "it has seen two that are counted, and one more"
    assert story.look(a=3, b=3) == {}


def test_a_process_that_is_read_while_the_others_recover_does_not_count_it_again() -> None:
    story = Story()
    story.look(a=0, b=0)
    assert story.look(a=1, b=0) == {"lost": Recoveries(1, 0.5)}
    assert story.look(a=1, b=1) == {}


def test_a_newcomer_has_what_is_counted() -> None:
    story = Story()
    story.look(a=0)
    assert story.look(a=1, c=1) == {"lost": Recoveries(1, 0.5)}
    assert story.look(a=1, c=2) == {"lost": Recoveries(1, 0.5)}


def test_a_process_that_will_never_count_one_is_behind_until_all_is_quiet() -> None:
    story = Story()
    story.look(a=0, b=0)
    story.look(a=1, b=0)
    assert story.look(a=1, b=0) == {}
    assert story.look(b=1) == {"lost": Recoveries(1, 0.5)}
