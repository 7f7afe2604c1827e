"""The scaler corrects the Job's size, and does not change a Job that has it or is finished."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from controller import scale


def job(parallelism: int, completions: int, condition: str | None = None) -> dict[str, Any]:
    """Return a Job of a size."""
    conditions = [{"type": condition, "status": "True"}] if condition else []
    return {"spec": {"parallelism": parallelism, "completions": completions}, "status": {"conditions": conditions}}


class FakeApi:
    """One Job that can be read and patched."""

    def __init__(self, found: dict[str, Any]) -> None:
        self.job = found
        self.patches = 0

    def get(self) -> dict[str, Any]:
        return self.job

    def patch(self, change: dict[str, Any]) -> dict[str, Any]:
        self.patches += 1
        self.job["spec"].update(change["spec"])
        return self.job


@pytest.mark.parametrize("found", [job(2, 2), job(3, 2), job(2, 3)], ids=["both", "completions", "parallelism"])
def test_both_fields_are_set_in_one_patch(found: dict[str, Any]) -> None:
    assert scale.correction(found, 3) == {"spec": {"parallelism": 3, "completions": 3}}


def test_a_job_of_the_right_size_is_not_changed() -> None:
    assert scale.correction(job(3, 3), 3) is None


@pytest.mark.parametrize("condition", ["Complete", "Failed"])
def test_a_finished_job_is_not_changed(condition: str) -> None:
    assert scale.correction(job(2, 2, condition), 3) is None


def test_it_is_ready_when_the_job_has_its_size(tmp_path: Path) -> None:
    api, ready = FakeApi(job(2, 2)), tmp_path / "ready"
    scale.hold(api, 3, ready)
    assert ready.exists()
    assert api.job["spec"] == {"parallelism": 3, "completions": 3}
    scale.hold(api, 3, ready)
    assert api.patches == 1


def test_it_is_not_ready_until_the_pods_above_the_size_are_ending(tmp_path: Path) -> None:
    api, ready = FakeApi(job(3, 3)), tmp_path / "ready"
    api.job["status"]["active"] = 3
    assert not scale.hold(api, 1, ready)
    assert not ready.exists()
    api.job["status"]["active"] = 1
    assert scale.hold(api, 1, ready)
    assert ready.exists()


def test_it_is_not_ready_while_the_api_cannot_be_reached(tmp_path: Path) -> None:
    class Unreachable(FakeApi):
        def get(self) -> dict[str, Any]:
            raise ConnectionRefusedError

    with pytest.raises(OSError):  # noqa: PT011
        scale.hold(Unreachable(job(2, 2)), 3, tmp_path / "ready")
    assert not (tmp_path / "ready").exists()
