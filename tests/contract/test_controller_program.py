"""The controller's flags about quotas are read as they were written, and anything else is refused."""

from __future__ import annotations

import pytest

from tidewater.contract.controller_program import Quota, quotas_of, quotas_text, size_of, size_text


def test_quotas_are_read_as_they_were_written() -> None:
    quotas = {"vision": Quota(2, 4), "speech": Quota(0, 10)}
    assert quotas_text(quotas) == "vision=2:4,speech=0:10"
    assert quotas_of(quotas_text(quotas)) == quotas


@pytest.mark.parametrize("text", ["", "vision", "vision=2", "vision=2:", "=2:4", "vision=2:4,", "vision=a:4", "a=-1:4"])
def test_another_form_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no quota of another namespace, as in vision=2:4"):
        quotas_of(text)


def test_a_namespace_has_one_quota_and_it_is_not_above_its_most() -> None:
    with pytest.raises(ValueError, match="'vision=1:1' is no quota of another namespace"):
        quotas_of("vision=2:4,vision=1:1")
    with pytest.raises(ValueError, match="'vision=5:4': the first number is above the second"):
        quotas_of("vision=5:4")


def test_a_size_is_read_as_it_was_written() -> None:
    size = {"cpu": "3500m", "memory": "12Gi", "nvidia.com/gpu": "1"}
    assert size_of(size_text(size)) == size
    with pytest.raises(ValueError, match="'cpu' are no resources"):
        size_of("cpu")
