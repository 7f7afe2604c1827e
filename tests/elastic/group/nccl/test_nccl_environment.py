"""NCCL's environment is one that a survivor survives, or the worker refuses to start."""

from __future__ import annotations

import pytest

from tidewater.elastic.errors import ConfigError
from tidewater.elastic.group.nccl_environment import needed

DEADLY = {
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "3",
    "TORCH_NCCL_BLOCKING_WAIT": "1",
    "TORCH_NCCL_DESYNC_DEBUG": "1",
    "TORCH_NCCL_ENABLE_MONITORING": "1",
    "TORCH_NCCL_TEARDOWN_ON_TIMEOUT": "1",
}


def test_the_variables_that_end_a_survivor_are_set() -> None:
    found = needed({"PATH": "/bin"})
    assert found.keys() >= DEADLY.keys()
    assert set(found.values()) == {"0"}


@pytest.mark.parametrize("name", DEADLY)
def test_a_deadly_value_is_refused_by_name_with_the_remedy(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"{name}={DEADLY[name]} .* unset it, or set it to 0"):
        needed({name: DEADLY[name]})


def test_a_value_with_which_a_worker_survives_is_kept() -> None:
    kept = {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "2", "TORCH_NCCL_DUMP_ON_TIMEOUT": "1"}
    assert not needed(kept).keys() & kept.keys()
