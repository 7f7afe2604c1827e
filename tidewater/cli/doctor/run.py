"""Runs checks at the same time. Pure of what they check.

for check, result in results_of(CHECKS, place): ...
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future

from tidewater.cli.doctor.place import Place
from tidewater.cli.doctor.results import Check, Outcome, Result, fix, skipped
from tidewater.cli.errors import TimeoutReached
from tidewater.cli.parallel import at_once
from tidewater.kube.errors import ErrorWithRemedy, Forbidden

Ends = Mapping[str, "Future[Result]"]


def results_of(checks: Sequence[Check], place: Place) -> Iterator[tuple[Check, Result]]:
    """Yield the checks with their results, in the order of the list, each as soon as it and those before it have ended.

    Raises:
        Exception: what a check raised that is no ErrorWithRemedy: a defect of the check.
    """
    ends: Ends = {check.name: Future() for check in checks}
    for check in checks:
        threading.Thread(target=_end, args=(check, place, ends), daemon=True).start()
    for check in checks:
        yield check, ends[check.name].result()


def _end(check: Check, place: Place, ends: Ends) -> None:
    try:
        if check.needs and ends[check.needs].result().outcome in (Outcome.FIX, Outcome.SKIPPED):
            ends[check.name].set_result(skipped(f"not checked, see {check.needs}"))
        else:
            ends[check.name].set_result(_limited(check, place))
    except Exception as error:
        ends[check.name].set_exception(error)


def _limited(check: Check, place: Place) -> Result:
    """Return the result of a check within its time limit."""
    (found,) = at_once([lambda: check.run(place)], seconds=check.seconds)
    if isinstance(found, TimeoutReached):
        return skipped(f"could not be checked within {check.seconds:g} s")
    if isinstance(found, Forbidden):
        return skipped(f"could not be checked: {found.message}")
    if isinstance(found, ErrorWithRemedy):
        return fix(found.message, found.remedy)
    return found
