"""The command line of the controller."""

from __future__ import annotations

import pytest

from controller.cluster.lease import LeaseName
from controller.main import METRICS_PORT, flags_of


def test_without_flags_it_looks_after_all_namespaces_and_elects_in_its_own() -> None:
    flags = flags_of([], "tidewater-system")
    assert flags.options.namespace is None
    assert flags.lease == LeaseName("tidewater-system", "elasticjob-controller")
    assert flags.metrics_port == METRICS_PORT
    assert flags.log_level == "info"


def test_every_flag_is_used() -> None:
    text = "--namespace a --workers 3 --cluster-domain d --lease-namespace b --lease-name c --metrics-port 0"
    flags = flags_of([*text.split(), "--log-level", "debug"], "x")
    assert (flags.options.namespace, flags.options.workers, flags.options.domain) == ("a", 3, "d")
    assert flags.lease == LeaseName("b", "c")
    assert (flags.metrics_port, flags.log_level) == (0, "debug")


@pytest.mark.parametrize("wrong", ["--workers=0", "--workers=many", "--log-level=loud", "--jobs=1"])
def test_a_wrong_flag_is_named(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        flags_of([wrong], "x")
    assert wrong.split("=")[0] in capsys.readouterr().err
