"""NCCL's environment is one that a survivor survives, or the worker refuses to start."""

from __future__ import annotations

import pytest

from tidewater.elastic.errors import ConfigError
from tidewater.elastic.group.nccl_environment import needed

SECONDS = 30.0
DEADLY = {
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "3",
    "TORCH_NCCL_BLOCKING_WAIT": "1",
    "TORCH_NCCL_DESYNC_DEBUG": "1",
    "TORCH_NCCL_ENABLE_MONITORING": "1",
    "TORCH_NCCL_TEARDOWN_ON_TIMEOUT": "1",
    "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "15000",
}


def test_the_variables_that_end_a_survivor_are_set() -> None:
    found = needed({"PATH": "/bin"}, SECONDS)
    assert found.keys() >= DEADLY.keys()
    assert {found[name] for name in DEADLY} == {"0"}


def test_torch_waits_for_a_communicator_as_long_as_the_group_does() -> None:
    assert needed({}, 29.5)["TORCH_NCCL_NONBLOCKING_TIMEOUT"] == "30"


def test_multicast_over_nvlink_is_off_unless_the_user_has_set_it() -> None:
    assert needed({}, SECONDS)["NCCL_NVLS_ENABLE"] == "0"
    assert "NCCL_NVLS_ENABLE" not in needed({"NCCL_NVLS_ENABLE": "1"}, SECONDS)


@pytest.mark.parametrize("value", ["DETAIL", "detail"])
def test_the_debug_level_that_ends_a_survivor_is_refused_by_name(value: str) -> None:
    with pytest.raises(ConfigError, match=rf"TORCH_DISTRIBUTED_DEBUG={value} .* unset it, or set it to INFO"):
        needed({"TORCH_DISTRIBUTED_DEBUG": value}, SECONDS)
    assert "TORCH_DISTRIBUTED_DEBUG" not in needed({"TORCH_DISTRIBUTED_DEBUG": "INFO"}, SECONDS)


@pytest.mark.parametrize("name", DEADLY)
def test_a_deadly_value_is_refused_by_name_with_the_remedy(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"{name}={DEADLY[name]} .* unset it, or set it to 0"):
        needed({name: DEADLY[name]}, SECONDS)


def test_a_value_with_which_a_worker_survives_is_kept() -> None:
    kept = {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "2", "TORCH_NCCL_DUMP_ON_TIMEOUT": "1"}
    assert not needed(kept, SECONDS).keys() & kept.keys()
