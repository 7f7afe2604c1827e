"""Volumes of FSx for Lustre are found by DNS name and mount name."""

from __future__ import annotations

from pathlib import Path

import pytest
from localcloud.kube.csi.driver import CSI
from localcloud.kube.csi.lustre import finder
from localcloud.kube.csi.volume import InvalidVolume, NotMountable

HOST = "fs-0123abcd.fsx.us-west-2.amazonaws.com"


def found(root: Path, **attributes: str) -> Path:
    return finder(root)(CSI["NodePublishVolumeRequest"](volume_id="fs-0123abcd", volume_context=attributes))


def test_a_volume_is_the_folder_of_its_file_system(tmp_path: Path) -> None:
    (tmp_path / "fs-0123abcd" / "0123abcd").mkdir(parents=True)
    assert found(tmp_path, dnsname=HOST, mountname="0123abcd") == tmp_path / "fs-0123abcd" / "0123abcd"


@pytest.mark.parametrize(("host", "name"), [(HOST, "other"), (HOST.replace("0123", "ffff"), "0123abcd")])
def test_a_file_system_that_does_not_exist_is_one_sentence(tmp_path: Path, host: str, name: str) -> None:
    (tmp_path / "fs-0123abcd" / "0123abcd").mkdir(parents=True)
    with pytest.raises(NotMountable, match=f"mount {host}@tcp:/{name} failed: No such file"):
        found(tmp_path, dnsname=host, mountname=name)


@pytest.mark.parametrize(
    "attributes", [{}, {"dnsname": HOST}, {"dnsname": HOST, "mountname": "../x"}, {"dnsname": ".."}]
)
def test_a_volume_without_a_usable_name_is_refused(tmp_path: Path, attributes: dict[str, str]) -> None:
    with pytest.raises(InvalidVolume, match=r"(dnsname|mountname) is not provided, or is none of a file system"):
        found(tmp_path, **attributes)
