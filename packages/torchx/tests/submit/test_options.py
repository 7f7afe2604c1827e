"""The run options: what TorchX passes over is an error that names the option."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from tidewater_torchx.errors import Refused
from tidewater_torchx.submit.options import Options, run_opts
from torchx.specs import CfgVal
from torchx.specs.api import InvalidRunConfigException


def given(**cfg: CfgVal) -> Options:
    return Options.of(run_opts().resolve(cfg))


def test_every_option_has_a_default() -> None:
    assert given() == Options()
    assert (given().reserved_millicpu, given().reserved_memmb) == (100, 1024)


def test_options_of_a_command_line_have_their_types() -> None:
    cfg = run_opts().cfg_from_str("queue=team,reserved_memmb=0,validate_spec=False,etcd=a:2379,b:2379")
    options = Options.of(run_opts().resolve(cfg))
    assert options == Options(queue="team", reserved_memmb=0, validate_spec=False, etcd="a:2379,b:2379")


@pytest.mark.parametrize("text", ["", None])
def test_a_command_line_without_options_is_none(text: str) -> None:
    assert run_opts().cfg_from_str(text) == {}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        pytest.param("qeue=team", "Unknown run option: qeue; there are bucket, efa_device_count", id="unknown"),
        pytest.param("reserved_memmb=1GiB", "reserved_memmb, must be of type int, but was: 1GiB", id="no-number"),
        pytest.param("validate_spec=yes", "validate_spec, must be true or false, but was: yes", id="no-truth-value"),
        pytest.param("queue", "`queue` does not have at least one `key=value` pair", id="no-value"),
        pytest.param("queue=a=b,namespace=c", "`a` cannot be split", id="two-equals-signs"),
    ],
)
def test_a_wrong_option_of_a_command_line_is_named(text: str, told: str) -> None:
    with pytest.raises(InvalidRunConfigException, match=told):
        run_opts().cfg_from_str(text)


def test_what_torchx_configure_writes_and_every_truth_value_of_a_file_are_right() -> None:
    run_opts().check_section({name: str(option.default) for name, option in run_opts()}, "file")
    for text in ("yes", "Off", "1"):
        run_opts().check_section({"quiet": text}, "file")


@pytest.mark.parametrize(
    ("cfg", "told"),
    [
        pytest.param({"qeue": "team"}, "Unknown run option: qeue", id="unknown"),
        pytest.param({"queue": 3}, "Run option: queue, must be of type: str", id="number-for-a-text"),
        pytest.param({"reserved_memmb": "3"}, "reserved_memmb, must be of type: int", id="text-for-a-number"),
        pytest.param({"reserved_memmb": True}, "reserved_memmb, must be of type: int", id="truth-value-for-a-number"),
    ],
)
def test_a_wrong_option_from_python_is_named(cfg: Mapping[str, CfgVal], told: str) -> None:
    with pytest.raises(InvalidRunConfigException, match=told):
        run_opts().resolve(cfg)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("namespace", "Team A"),
        ("queue", "Team_A"),
        ("service_account", "a/b"),
        ("priority_class", "High!"),
        ("etcd", "$(rm) etcd"),
        ("bucket", "s3://bucket"),
        ("image_repo", "with blanks"),
        ("reserved_memmb", -1),
        ("reserved_millicpu", -1),
        ("efa_device_count", -1),
    ],
)
def test_a_value_that_nothing_can_have_is_named(name: str, value: CfgVal) -> None:
    with pytest.raises(Refused) as error:
        given(**{name: value})
    assert str(error.value).startswith(f"option {name}={value}: ")


def test_the_help_names_every_option() -> None:
    shown = repr(run_opts())
    assert all(f"{name}={name.upper()}" in shown for name in Options.__dataclass_fields__)
