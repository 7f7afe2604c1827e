"""All settings are checked together."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from tidewater.contract import env, rehearsal
from tidewater.elastic.addresses import Address
from tidewater.elastic.config import Config, no_flags
from tidewater.elastic.errors import ConfigError
from tidewater.elastic.flags import parser
from tidewater.elastic.launch import launcher
from tidewater.elastic.peer.keyvalue import Place

ENVIRON = {
    env.JOB: "digits", env.ETCD: "http://e1:2379, http://e2:2379", env.WORKER: "w-0", env.HOST: "10.0.0.7",
    env.MIN_WORKERS: "2", env.MAX_WORKERS: "5", env.DATA: "/data/digits", env.CHECKPOINTS: "/data/checkpoints/digits",
}  # fmt: skip


def test_the_environment_of_a_manifest_is_a_complete_configuration() -> None:
    config = Config.parse([], ENVIRON)
    assert (config.job, config.worker, config.host) == ("digits", "w-0", "10.0.0.7")
    assert config.etcd == ("http://e1:2379", "http://e2:2379")
    assert (config.min_workers, config.max_workers) == (2, 5)
    assert config.data == Path("/data/digits")


def test_a_flag_takes_precedence_over_the_environment() -> None:
    assert Config.parse(["--job", "other", "--max-workers", "9"], ENVIRON).job == "other"


def test_all_mistakes_are_reported_together() -> None:
    with pytest.raises(ConfigError) as caught:
        Config.parse(
            ["--epochs", "0", "--heartbeat-seconds", "0", "--max-workers", "1", "--metrics-port", "65536"],
            {env.MIN_WORKERS: "3"},
        )
    for words in (
        "--job",
        "--etcd",
        "--checkpoints",
        "--epochs is 0",
        "--heartbeat-seconds is 0",
        "--max-workers is 1",
    ):
        assert words in str(caught.value)
    assert "--metrics-port is 65536, the last port is 65535" in str(caught.value)


def test_help_names_every_environment_variable() -> None:
    text = parser({}, no_flags).format_help()
    for name, value in vars(env).items():
        if isinstance(value, str) and name.isupper() and not name.startswith("LOCAL_"):
            assert value in text


def test_etcd_credentials_come_from_flags_and_the_password_only_from_the_environment() -> None:
    config = Config.parse(["--etcd-user", "trainer"], {**ENVIRON, env.ETCD_PASSWORD: "secret"})
    assert (config.etcd_access.user, config.etcd_access.password) == ("trainer", "secret")
    assert "secret" not in repr(config)
    with pytest.raises(ConfigError, match="belong together"):
        Config.parse(["--etcd-user", "trainer"], ENVIRON)
    with pytest.raises(ConfigError, match=r"--etcd-cacert /nowhere\.pem"):
        Config.parse(["--etcd-cacert", "/nowhere.pem"], ENVIRON)


def test_a_script_can_add_its_own_flags_to_the_common_ones() -> None:
    config = Config.parse(["--lr", "0.5", "--epochs", "3"], ENVIRON, lambda group: _add_lr(group))
    assert (config.user.lr, config.epochs) == (0.5, 3)


def _add_lr(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--lr", type=float, default=0.1)


@pytest.mark.parametrize(("policy", "samples", "factor"), [("keep", 64, 1.0), ("scale", 192, 3.0)])
def test_the_batch_policy_determines_the_batch_of_three_workers(policy: str, samples: int, factor: float) -> None:
    config = Config.parse(["--batch-size", "64", "--batch-policy", policy], ENVIRON)
    assert (config.step_size(3), config.lr_factor(3)) == (samples, factor)


def test_the_jobs_secret_comes_only_from_the_environment_and_is_long_enough() -> None:
    secret = 32 * "s"
    config = Config.parse([], {**ENVIRON, env.SECRET: secret})
    assert config.secret == secret
    assert secret not in repr(config)
    assert Config.parse([], ENVIRON).secret == ""
    with pytest.raises(ConfigError, match="TIDEWATER_SECRET has 5 characters, the least is 32") as error:
        Config.parse([], {**ENVIRON, env.SECRET: "short"})
    assert "short" not in str(error.value)


def test_the_address_at_which_processes_meet_is_not_shown_since_it_has_the_secret() -> None:
    place = str(Place(Address("10.0.0.7", 80, "ab"), 1, b"secret"))
    local = {**ENVIRON, env.LOCAL_RANK: "0", env.LOCAL_MEETING: place}
    config = Config.parse(["--shard=2"], {**local, env.LOCAL_SIZE: "2"})
    assert config.meeting == place
    assert b"secret".hex() not in repr(config)
    with pytest.raises(
        ConfigError, match="this process has TIDEWATER_LOCAL_SIZE=3 and a TIDEWATER_LOCAL_MEETING"
    ) as error:
        Config.parse(["--shard=2"], {**local, env.LOCAL_SIZE: "3"})
    assert b"secret".hex() not in str(error.value)


def test_the_brackets_of_an_ipv6_address_are_optional() -> None:
    assert Config.parse(["--host", "[fd00::5]"], ENVIRON).host == Config.parse(["--host", "fd00::5"], ENVIRON).host


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--sync-every", "0"], "--sync-every is 0, the least is 1"),
        (["--sync-every", "8", "--amp", "fp16"], "--sync-every is given with --amp fp16"),
        (["--sync-every", "8", "--sum-dtype", "fp16"], "--sync-every is given with --sum-dtype fp16"),
        (["--sync-every", "8", "--outer-lr", "0"], "--outer-lr is 0, it must be a number above 0"),
        (["--sync-every", "8", "--outer-lr", "nan"], "--outer-lr is nan"),
        (["--sync-every", "8", "--outer-momentum", "1"], "--outer-momentum is 1, it must be at least 0 and below 1"),
        (["--outer-lr", "0.5"], "--outer-lr is 0.5, and there is no outer optimizer: give --sync-every"),
        (["--sync-every", "8", "--outer-beta", "0.9"], "--outer-beta is no option of the outer optimizer"),
        (["--sync-every", "8", "--outer-beta=0.9"], "--outer-beta is no option of the outer optimizer"),
    ],
)
def test_mistakes_in_what_sync_every_needs_are_one_sentence(flags: list[str], named: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Config.parse(flags, ENVIRON)
    assert str(caught.value).startswith(named)
    assert ";" not in str(caught.value)


def test_a_rehearsal_refuses_sync_every(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--sync-every is given in a rehearsal"):
        Config.parse(["--sync-every", "8"], {**ENVIRON, rehearsal.FOLDER: str(tmp_path)})


def test_an_unknown_flag_is_still_one_of_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        Config.parse(["--inner-lr", "3"], ENVIRON)
    assert "unrecognized arguments: --inner-lr 3" in capsys.readouterr().err


def test_the_outer_optimizer_has_the_constants_of_the_paper_unless_others_are_given() -> None:
    assert Config.parse([], ENVIRON).outer is None
    assert Config.parse(["--sync-every", "8"], ENVIRON).outer == (0.7, 0.9)
    assert Config.parse(["--sync-every", "8", "--outer-lr", "1", "--outer-momentum", "0"], ENVIRON).outer == (1.0, 0.0)


def test_an_inner_step_has_the_learning_rate_of_one_workers_batch() -> None:
    config = Config.parse(["--batch-size", "64", "--batch-policy", "scale", "--sync-every", "8"], ENVIRON)
    assert (config.step_size(3), config.lr_factor(3)) == (192, 1.0)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--sync-every", "4"), "--sync-every is given with --shard 2, which doesn't support it yet: leave it out"),
        (("--amp", "fp16"), "--amp fp16 is given with --shard 2, which doesn't support it yet: use --amp bf16"),
        (("--bad-samples", "skip"), "--bad-samples skip is given with --shard 2, which doesn't support it yet"),
        (("--shard", "0"), "--shard is 0, the least is 1"),
    ],
)
def test_what_is_not_supported_with_a_divided_model_is_refused_by_name(flags: tuple[str, ...], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Config.parse(["--shard", "2", *flags], ENVIRON)
    assert words in str(caught.value)


def test_the_processes_that_divide_a_model_are_one_member_with_one_name() -> None:
    local = {env.LOCAL_SIZE: "4", env.LOCAL_MEETING: "/here/1"}
    found = [
        launcher.share(Config.parse(["--shard", "2"], {**ENVIRON, **local, env.LOCAL_RANK: str(rank)}))
        for rank in range(4)
    ]
    assert [(each.worker, each.index, each.process) for each in found] == [
        ("w-0/0", 0, "w-0/0"),
        ("w-0/0", 1, "w-0/0.1"),
        ("w-0/1", 0, "w-0/1"),
        ("w-0/1", 1, "w-0/1.1"),
    ]
    assert {(each.least_members, each.most_members) for each in found} == {(3, 10)}
    alone = {**local, env.LOCAL_SIZE: "2", env.LOCAL_RANK: "1"}
    assert launcher.share(Config.parse(["--shard", "2"], {**ENVIRON, **alone})).process == "w-0.1"


def test_a_number_of_processes_that_the_shards_do_not_divide_is_refused() -> None:
    assert [launcher.plan(each, {}, 2).processes for each in ("1", "2", "4", "auto")] == [2, 2, 4, 2]
    with pytest.raises(ConfigError, match=r"--shard is 2, which doesn't divide the 3 processes of this worker"):
        launcher.plan("3", {}, 2)


def test_a_process_of_a_divided_model_without_its_launcher_is_refused() -> None:
    with pytest.raises(ConfigError, match="they are the launcher's; unset them"):
        Config.parse(["--shard", "2"], {**ENVIRON, env.LOCAL_RANK: "0", env.LOCAL_SIZE: "2"})


NODES = ("--shard-nodes", "2", "--replica", "w-0")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--shard-nodes", "0"), "--shard-nodes is 0, the least is 1"),
        (("--shard-node", "-1"), "--shard-node is -1, the least is 0"),
        ((*NODES, "--shard", "3"), "--shard-nodes is 2, which doesn't divide --shard, 3"),
        ((*NODES, "--shard-node", "2"), "--shard-node is 2, and --shard-nodes is 2: the last machine has number 1"),
        (("--shard-node", "1"), "--shard-node is 1, and --shard-nodes is 1: the last machine has number 0"),
        (
            (*NODES, "--shard", "4", "--processes", "4"),
            "--shard is 4 over 2 machines, which makes 2 processes on each, and --processes is 4: leave it out",
        ),
        (("--replica", "w-0"), "--replica is 'w-0', and --shard-nodes is 1: it is the name that several machines"),
        (
            ("--shard-nodes", "2"),
            "--shard-nodes is 2, and --replica is missing: give all machines of a worker",
        ),
    ],
)
def test_machines_that_do_not_fit_the_processes_of_a_worker_are_refused(flags: tuple[str, ...], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Config.parse(flags, ENVIRON)
    assert words in str(caught.value)


def test_a_worker_over_several_machines_is_not_rehearsed() -> None:
    with pytest.raises(ConfigError, match="--shard-nodes is 2 in a rehearsal, which is made on one machine"):
        Config.parse(NODES, {**ENVIRON, rehearsal.FOLDER: "/here"})


def test_by_default_the_processes_of_all_machines_divide_a_model() -> None:
    assert Config.parse(NODES, ENVIRON).shard == 2
    assert Config.parse([*NODES, "--processes", "4"], ENVIRON).shard == 8
    local = {env.LOCAL_RANK: "3", env.LOCAL_SIZE: "4", env.LOCAL_MEETING: "tcp://here"}
    assert Config.parse([*NODES, "--processes", "auto"], {**ENVIRON, **local}).shard == 8
    given = {env.SHARD_NODES: "2", env.SHARD_NODE: "1", env.REPLICA: "w-0", env.SHARD: "6"}
    found = Config.parse([], {**ENVIRON, **given})
    assert (found.shard, found.shard_nodes, found.shard_node, found.replica) == (6, 2, 1, "w-0")


def test_the_processes_of_several_machines_are_one_member_with_names_of_their_machines() -> None:
    found = []
    for node in range(2):
        for rank in range(2):
            local = {env.LOCAL_SIZE: "2", env.LOCAL_RANK: str(rank), env.LOCAL_MEETING: "tcp://here"}
            given = [*NODES, "--shard", "4", "--shard-node", str(node), "--worker", f"w-{node}", "--metrics-port", "80"]
            found.append(launcher.share(Config.parse(given, {**ENVIRON, **local})))
    assert [(each.worker, each.index, each.process, each.metrics_port) for each in found] == [
        ("w-0", 0, "w-0", 80),
        ("w-0", 1, "w-0.1", 81),
        ("w-0", 2, "w-1", 80),
        ("w-0", 3, "w-1.1", 81),
    ]
    assert {(each.least_members, each.most_members, each.members) for each in found} == {(2, 5, 1)}


def test_a_machine_has_its_part_of_a_workers_processes_and_no_other_ones() -> None:
    assert [launcher.plan(each, {}, 4, 2).processes for each in ("1", "2", "auto")] == [2, 2, 2]
    assert launcher.plan("1", {}, 2, 2).processes == 1
    gpus = {"CUDA_VISIBLE_DEVICES": "0,1,2,3"}
    with pytest.raises(ConfigError, match="--processes is auto, which is 4 here, and with --shard-nodes 2 a machine"):
        launcher.plan("auto", gpus, 4, 2)
