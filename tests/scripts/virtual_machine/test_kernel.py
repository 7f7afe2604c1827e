"""Which package has the kernel, and in which order its modules are loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.toolchain import debian
from scripts.toolchain.errors import StepFailed
from scripts.toolchain.table import SYSTEMS
from scripts.virtual_machine import kernel

DEPENDENCIES = """\
kernel/fs/9p/9p.ko: kernel/net/9p/9pnet.ko kernel/fs/fscache/fscache.ko kernel/fs/netfs/netfs.ko
kernel/net/9p/9pnet.ko:
kernel/fs/fscache/fscache.ko: kernel/fs/netfs/netfs.ko
kernel/fs/netfs/netfs.ko:
kernel/crypto/crc32c-generic.ko.xz:
"""


def test_the_kernel_is_the_one_that_the_release_has_now() -> None:
    depends = "linux-image-amd64\n  Depends: linux-image-6.1.0-56-amd64\n  Suggests: linux-doc\n"
    assert kernel.newest(depends) == "linux-image-6.1.0-56-amd64"


def test_sources_without_debians_kernel_are_an_error_with_a_remedy() -> None:
    with pytest.raises(StepFailed, match=r"no package linux-image-amd64: .* run it on Debian, after `apt-get update`"):
        kernel.newest("")


def test_a_module_is_loaded_after_all_that_it_needs_and_once() -> None:
    files = kernel.in_order(DEPENDENCIES, ["9p", "9pnet", "crc32c_generic"])
    assert [Path(file).name for file in files] == [
        "netfs.ko", "fscache.ko", "9pnet.ko", "9p.ko", "crc32c-generic.ko.xz",
    ]  # fmt: skip


def test_a_module_that_the_kernel_lacks_is_named() -> None:
    with pytest.raises(StepFailed, match="no module veth"):
        kernel.in_order(DEPENDENCIES, ["9p", "veth"])


def test_another_init_makes_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debian, "here", lambda: SYSTEMS[0])
    before = kernel.folder()
    changed = tmp_path / "init.sh"
    changed.write_bytes(kernel.INIT.read_bytes() + b"# changed\n")
    monkeypatch.setattr(kernel, "INIT", changed)
    assert kernel.folder() != before
