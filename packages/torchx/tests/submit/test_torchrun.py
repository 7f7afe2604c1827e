"""torchrun's command line is found in what TorchX's components make, and meets in etcd."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from tidewater_torchx.submit.torchrun import found_in, met_in_etcd
from torch.distributed.run import get_args_parser
from torchx.components import dist, utils
from torchx.specs import Role

from packages.torchx.tests.doubles import role

ETCD = "http://etcd.training.svc:2379"


def ddp(*args: str, **fields: Any) -> Role:
    found: Role = dist.ddp(*args, **{"script": "train.py", "j": "1:3x2", "image": "img", **fields}).roles[0]
    return found


def words(changed: Role) -> list[str]:
    """Return the words that bash would give to torchrun."""
    return shlex.split(changed.args[1])


def test_the_agents_of_dist_ddp_meet_in_etcd() -> None:
    found = words(met_in_etcd(ddp("--epochs", "3"), ETCD))
    assert found[:7] == [
        "torchrun",
        "--rdzv_backend",
        "etcd-v3",
        "--rdzv_endpoint",
        ETCD,
        "--rdzv_id",
        "${app_id}",
    ]
    assert found[7:] == [
        "--nnodes",
        "1:3",
        "--nproc_per_node",
        "2",
        "--tee",
        "3",
        "--role",
        "",
        "train.py",
        "--epochs",
        "3",
    ]


def test_a_module_is_no_option_with_a_value() -> None:
    command = found_in(ddp("--rdzv_backend", "mine", script=None, m="my.module"))
    assert command is not None
    assert command.option("rdzv-backend") is not None
    assert words(met_in_etcd(ddp("--rdzv_backend", "mine", script=None, m="my.module"), ETCD))[-4:] == [
        "-m",
        "my.module",
        "--rdzv_backend",
        "mine",
    ]


def test_the_scripts_own_arguments_are_not_torchruns() -> None:
    found = words(met_in_etcd(ddp("--rdzv_endpoint", "here", "--rdzv_backend=c10d"), ETCD))
    assert found[-3:] == ["--rdzv_endpoint", "here", "--rdzv_backend=c10d"]


def test_quoted_arguments_stay_as_they_are() -> None:
    given = ddp("a 'b'  c", '"$(x)"', "back\\slash")
    assert words(met_in_etcd(given, ETCD))[-3:] == ["a 'b'  c", '"$(x)"', "back\\slash"]


def test_torchrun_without_a_shell_is_found_too() -> None:
    given = role(
        entrypoint="/usr/bin/torchrun", args=["--rdzv-backend=c10d", "--rdzv-endpoint", "h:1", "a b.py", "--x"]
    )
    changed = met_in_etcd(given, ETCD)
    assert changed.args == ["--rdzv-backend=etcd-v3", "--rdzv-endpoint", ETCD, "a b.py", "--x"]


@pytest.mark.parametrize("python", ["python", "python3", "/usr/bin/python3.11"])
@pytest.mark.parametrize("flags", [[], ["-u"]])
def test_torchrun_as_a_module_is_found_too(python: str, flags: list[str]) -> None:
    before, after = (
        [*flags, "-m", "torch.distributed.run", "--rdzv-backend=" + backend, "--rdzv-endpoint", place, "a b.py", "-m"]
        for backend, place in (("c10d", "h:1"), ("etcd-v3", ETCD))
    )
    assert met_in_etcd(role(entrypoint=python, args=before), ETCD).args == after
    text = met_in_etcd(role(entrypoint="bash", args=["-c", shlex.join([python, *before])]), ETCD).args[1]
    assert shlex.split(text) == [python, *after]


@pytest.mark.parametrize(
    "place", ["$(hostname -i):1", "${A:-x y}:1", "`hostname -i`:1", '"$(a "b c")":1', "$(a $(b c))"]
)
def test_a_substitution_of_the_shell_is_one_word(place: str) -> None:
    given = role(entrypoint="bash", args=["-c", f"torchrun --rdzv_endpoint {place} --rdzv_backend c10d train.py"])
    assert words(met_in_etcd(given, ETCD))[1:] == ["--rdzv_endpoint", ETCD, "--rdzv_backend", "etcd-v3", "train.py"]


def test_every_flag_of_torchrun_is_known_to_have_no_value() -> None:
    flags = [name for action in get_args_parser()._actions if action.nargs == 0 for name in action.option_strings]
    for flag in set(flags) - {"-h", "--help"}:
        given = role(entrypoint="torchrun", args=[flag, "--rdzv-backend=c10d", "--rdzv-endpoint=h:1", "train.py"])
        found = found_in(given)
        assert found is not None
        assert found.option("rdzv-backend") is not None, flag


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(ddp(rdzv_backend="static"), id="another-backend"),
        pytest.param(role(entrypoint="torchrun", args=["train.py"]), id="no-rendezvous"),
        pytest.param(role(entrypoint="torchrun", args=["--rdzv-backend"]), id="ends-too-early"),
        pytest.param(utils.sh("torchrun", "--help", image="img").roles[0], id="another-command-of-a-shell"),
        pytest.param(role(entrypoint="bash", args=["-c", "echo torchrun --rdzv_backend c10d"]), id="echo"),
        pytest.param(role(entrypoint="bash", args=["-c", ""]), id="nothing"),
        pytest.param(role(), id="something-else"),
        pytest.param(role(entrypoint="python", args=["-m", "mine", "--rdzv-backend=c10d"]), id="another-module"),
        pytest.param(role(entrypoint="python", args=["-m"]), id="no-module"),
        pytest.param(ddp("--rdzv-backend", "c10d", rdzv_backend="static"), id="another-backend-and-the-scripts-own"),
        pytest.param(
            role(entrypoint="torchrun", args=["--rdzv-backend=etcd-v3", "--rdzv-endpoint=e:2379", "train.py"]),
            id="etcd-at-another-address",
        ),
    ],
)
def test_everything_else_stays_as_it_is(given: Role) -> None:
    assert met_in_etcd(given, ETCD) == given


def test_survivors_may_restart_their_workers_many_times() -> None:
    assert met_in_etcd(ddp(), ETCD).env["PET_MAX_RESTARTS"] == "100"


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(ddp(env={"PET_MAX_RESTARTS": "3"}), id="by-the-environment"),
        pytest.param(
            role(
                entrypoint="torchrun",
                args=["--max-restarts=3", "--rdzv-backend=c10d", "--rdzv-endpoint=h:1", "train.py"],
            ),
            id="by-an-option",
        ),
    ],
)
def test_whoever_says_how_often_is_obeyed(given: Role) -> None:
    changed = met_in_etcd(given, ETCD)
    assert changed.env.get("PET_MAX_RESTARTS", "3") == "3"
    assert "etcd-v3" in " ".join(changed.args)


def test_the_role_that_was_given_stays_as_it_was() -> None:
    given = ddp()
    before = (list(given.args), dict(given.env))
    met_in_etcd(given, ETCD)
    assert (given.args, given.env) == before
