"""What root may not do here, and what the kernel lacks, by name and with a remedy."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from localcloud.errors import KernelFeature, MissingRight
from localcloud.host import rights

ALL = "Name:\tpython\nCapEff:\t000001ffffffffff\nCapBnd:\t000001ffffffffff\n"
DOCKER = "Name:\tpython\nCapEff:\t00000000a80425fb\n"  # the capabilities of a container, as Docker documents them


def test_root_of_a_machine_has_what_is_needed() -> None:
    rights.check_capabilities(ALL)


def test_every_capability_that_a_container_lacks_is_named() -> None:
    with pytest.raises(MissingRight) as caught:
        rights.check_capabilities(DOCKER)
    assert "CAP_SYS_ADMIN (for namespaces, mounts and cgroups), CAP_NET_ADMIN (for network" in str(caught.value)
    assert "CAP_CHOWN" not in str(caught.value)


@pytest.mark.parametrize(
    ("failing", "text"),
    [("modprobe", "overlay"), ("--pid", "namespaces"), ("tmpfs", "mounted"), ("veth", "veth"), ("nft", "nftables")],
)
def test_a_kernel_feature_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, failing: str, text: str) -> None:
    monkeypatch.setattr("shutil.which", lambda program: f"/bin/{program}")

    def refusal(command: Sequence[str]) -> str | None:
        return "Operation not permitted" if failing in command else None

    with pytest.raises(KernelFeature, match=text):
        rights.check_kernel("nodev\text4\n" if failing == "modprobe" else "nodev\toverlay\n", refusal)


def test_what_needs_a_program_that_is_not_installed_yet_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda program: None)
    rights.check_kernel("nodev\toverlay\n", lambda command: pytest.fail(f"tried {command}"))


def test_a_refusal_is_the_first_line_of_the_error() -> None:
    assert rights.refusal(["sh", "-c", "echo one >&2; echo two >&2; exit 1"]) == "one"
    assert rights.refusal(["false"]) == "exit status 1"
    assert "no-such-program" in str(rights.refusal(["no-such-program"]))
    assert rights.refusal(["true"]) is None
