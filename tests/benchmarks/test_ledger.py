"""The ledgers of the ranks on one GPU show lost and repeated samples and different states."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from benchmarks.gpu.ledger import Final, Ledger, Worker, read, verdict

TOTAL, BATCH = 8, 4


def final(step: int, rank: int, samples: tuple[int, ...], size: int = 2) -> Final:
    return Final(step, 1, rank, size, 0.5, BATCH, f"state {step}", samples)


def worker(*finals: Final, also_saw: tuple[tuple[int, ...], ...] = ()) -> Worker:
    return Worker([*(each.samples for each in finals), *also_saw], list(finals))


def job() -> dict[str, Worker]:
    """Return an epoch of two steps by two workers."""
    return {
        "0": worker(final(1, 0, (0, 1)), final(2, 0, (4, 5))),
        "1": worker(final(1, 1, (2, 3)), final(2, 1, (6, 7))),
    }


def test_a_job_in_which_every_sample_is_used_once_has_no_problems() -> None:
    found = verdict(job(), TOTAL)
    assert (found.problems, found.steps, found.compared, found.lost, found.twice) == ([], 2, 2, 0, 0)


def test_a_killed_workers_last_share_is_what_its_loss_got() -> None:
    killed = job()
    # Its attempt of a third step was repeated by the survivor alone.
    killed["1"] = worker(final(1, 1, (2, 3)), also_saw=((6, 7), (2, 0)))
    killed["0"].finals.append(final(3, 0, (2, 0, 5, 7), size=1))
    killed["0"].saw.append((2, 0, 5, 7))
    assert verdict(killed, TOTAL).problems == []


def test_steps_that_neither_the_killed_worker_nor_one_that_fell_behind_reported_are_complete() -> None:
    three = {
        "0": worker(final(1, 0, (0, 1), 3), final(2, 0, (4, 5), 3)),
        "1": worker(final(1, 1, (2,), 3), also_saw=((6,),)),
        "2": worker(final(1, 2, (3,), 3), also_saw=((7,),)),
    }
    assert verdict(three, TOTAL).problems == []


def test_a_share_that_nobody_saw_is_lost() -> None:
    lost = job()
    lost["1"] = worker(final(1, 1, (2, 3)))
    found = verdict(lost, TOTAL)
    assert (found.lost, found.twice) == (2, 0)
    assert found.problems[0] == "step 2: 2 of its 4 samples are of no worker's loss"


def test_a_sample_that_two_steps_use_is_found() -> None:
    repeated = job()
    repeated["1"] = worker(final(1, 1, (2, 3)), final(2, 1, (6, 3)))
    found = verdict(repeated, TOTAL)
    assert (found.lost, found.twice) == (1, 1)
    assert found.problems == ["1 samples were lost and 1 used twice"]


def test_different_states_after_a_step_are_found() -> None:
    drifted = job()
    drifted["1"].finals[1] = replace(drifted["1"].finals[1], digest="another")
    (problem,) = verdict(drifted, TOTAL).problems
    assert problem.startswith("step 2: the workers have different states: ")


def test_two_newcomers_may_report_a_step_in_which_neither_took_part() -> None:
    joined = job()
    joined["2"] = joined["3"] = Worker([], [final(2, -1, ())])
    assert verdict(joined, TOTAL).problems == []


def test_a_newcomer_that_is_killed_after_a_step_without_it_has_its_first_share_counted() -> None:
    killed = job()
    killed["1"] = Worker([(6, 7)], [final(1, -1, ())])
    killed["0"] = worker(final(1, 0, (0, 1, 2, 3), size=1), final(2, 0, (4, 5)))
    assert verdict(killed, TOTAL).problems == []


def test_two_workers_that_took_the_same_rank_in_a_step_are_found() -> None:
    same = job()
    same["1"].finals[1] = replace(same["1"].finals[1], rank=0)
    assert verdict(same, TOTAL).problems == ["step 2: two workers report the same rank"]


def test_a_step_that_nobody_reports_is_found() -> None:
    gap = job()
    for each in gap.values():
        del each.finals[0]
    assert "step 1: no worker has reported it" in verdict(gap, TOTAL).problems


def test_a_line_that_a_killed_worker_left_half_written_is_skipped(tmp_path: Path) -> None:
    Ledger(tmp_path / "0-1.ledger").saw([3, 7])
    with (tmp_path / "0-1.ledger").open("a") as file:
        file.write('["saw", 1')
    assert read(tmp_path) == {"0-1": Worker([(3, 7)], [])}
