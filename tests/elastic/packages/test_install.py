"""The installer really runs, from the bundle that the job gets, against small wheels that the tests build."""

from __future__ import annotations

import functools
import http.server
import io
import os
import signal
import subprocess
import sys
import sysconfig
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import settings
from tests.elastic.packages.wheels import locked, wheel
from tidewater.elastic.errors import ConfigError, TrainerError
from tidewater.elastic.observe.log import Log
from tidewater.elastic.packages import install as installer
from tidewater.project.lock import parse
from workloads import bundle

ABI = str(sysconfig.get_config_var("SOABI"))
NOWHERE = "https://127.0.0.1:9/simple"
"""An index that isn't there."""


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves the files of a folder and prints nothing."""

    def log_message(self, *args: object) -> None:
        """Print nothing."""


def lock(folder: Path, *lines: str, options: tuple[str, ...] = ("--no-index", "--find-links .")) -> settings.Packages:
    found, mistakes = parse("\n".join([*options, *lines]), folder)
    assert mistakes == []
    return found


def packed(wanted: settings.Packages, folder: Path) -> Path:
    """Return a bundle as `pulumi up` makes it."""
    path = folder / "bundle.zip"
    path.write_bytes(bundle.installer(wanted).content)
    return path


def job(wanted: settings.Packages, folder: Path) -> list[str]:
    """Return the command of the job."""
    path = str(packed(wanted, folder))
    return [sys.executable, path, "packages", "--bundle", path, "--out", str(folder / "out")]


def run(wanted: settings.Packages, folder: Path) -> str:
    """Run the job; return its log."""
    ran = subprocess.run(job(wanted, folder), cwd=folder, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran
    return ran.stdout


@pytest.fixture
def install(tmp_path: Path, quiet: Log, monkeypatch: pytest.MonkeyPatch) -> Callable[[settings.Packages], None]:
    """Return a function that does the same with the pip of this environment, which starts sooner."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    return lambda wanted: installer.install(packed(wanted, tmp_path), tmp_path / "out" / ABI, quiet)


@pytest.fixture
def served(tmp_path: Path, install: Install, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield a folder that a server on loopback shows to pip as a page of links."""
    folder = tmp_path / "served"
    folder.mkdir()
    handler = functools.partial(Handler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("PIP_FIND_LINKS", f"http://127.0.0.1:{server.server_port}")
        yield folder
        server.shutdown()


Install = Callable[[settings.Packages], None]


def refused(install: Install, wanted: settings.Packages, error: type[TrainerError] = ConfigError) -> str:
    """Return the one sentence with which the job ends."""
    with pytest.raises(error) as raised:
        install(wanted)
    assert type(raised.value) is error
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_the_wheels_are_installed_once(tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    wanted = lock(
        wheels,
        wheel(wheels, "alpha", metadata=("Requires-Dist: beta>=1", "Requires-Dist: torch>=2")),
        wheel(wheels, "beta"),
    )
    assert "event=packages_progress doing=install packages=2 of_packages=2" in run(wanted, tmp_path)
    folder = tmp_path / "out" / ABI
    assert (folder / "alpha.py").read_text() == "VERSION = '1.0'\n"
    before = {path: path.stat().st_ino for path in folder.rglob("*")}
    again = run(wanted, tmp_path)
    assert "event=packages_ready" in again
    assert "packages_writing" not in again
    assert {path: path.stat().st_ino for path in folder.rglob("*")} == before


def test_a_killed_installer_leaves_nothing_that_counts(tmp_path: Path, install: Install) -> None:
    wheels = tmp_path / "wheels"
    modules = {f"alpha/module_{index}.py": f"X = {index}\n" for index in range(300)}
    wanted = lock(wheels, wheel(wheels, "alpha", files=modules))
    started = subprocess.Popen(job(wanted, tmp_path), cwd=tmp_path, stdout=subprocess.DEVNULL)
    while not list((tmp_path / "out").glob(f".{ABI}.draft-*")):
        assert started.poll() is None
        time.sleep(0.01)
    started.send_signal(signal.SIGKILL)
    started.wait()
    assert not (tmp_path / "out" / ABI).exists()
    install(wanted)
    assert len(list((tmp_path / "out" / ABI / "alpha").glob("*.py"))) == 300
    assert not list((tmp_path / "out").glob(".*draft*"))


def test_pip_unpacks_on_the_volume(tmp_path: Path, install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    folders: list[Path] = []
    run_it = installer._shown

    def seen(command: list[str], temporary: Path, total: int, log: Log) -> str | None:
        folders.append(temporary)
        return run_it(command, temporary, total, log)

    monkeypatch.setattr(installer, "_shown", seen)
    install(lock(tmp_path, wheel(tmp_path, "alpha")))
    (folder,) = folders
    assert folder.parent.parent == tmp_path / "out"
    assert not folder.exists()


def test_a_damaged_folder_is_filled_again(tmp_path: Path, install: Install) -> None:
    wanted = lock(tmp_path, wheel(tmp_path, "alpha"))
    install(wanted)
    (tmp_path / "out" / ABI / "alpha.py").unlink()
    install(wanted)
    assert (tmp_path / "out" / ABI / "alpha.py").exists()


def test_pip_does_not_come_from_the_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "image" / "pip").mkdir(parents=True)
    (tmp_path / "image" / "pip" / "__main__.py").write_text("raise SystemExit('another pip')")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'image'}{os.pathsep}{os.environ['PYTHONPATH']}")
    assert "packages_ready" in run(lock(tmp_path, wheel(tmp_path, "alpha")), tmp_path)


def test_another_wheel_than_the_locked_one_is_refused(tmp_path: Path, install: Install) -> None:
    wanted = lock(tmp_path, wheel(tmp_path, "alpha"))
    wheel(tmp_path, "alpha", files={"alpha.py": "evil = True"})
    assert "alpha==1.0 is not what was locked: the hash of its wheel is sha256:" in refused(install, wanted)
    assert not (tmp_path / "out" / ABI).exists()


def test_a_source_distribution_is_not_built(tmp_path: Path, install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "alpha-1.0.tar.gz"
    with tarfile.open(source, "w:gz"):
        pass
    wanted = lock(tmp_path, locked(source, "alpha"))
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    assert "alpha==1.0 is a source distribution, and no job builds it" in refused(install, wanted)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        pytest.param(
            {"metadata": ("Requires-Dist: torch==1.2.3",)},
            "alpha 1.0 needs torch==1.2.3, and the image has torch",
            id="another-torch",
        ),
        pytest.param({"tag": "cp39-cp39-win_amd64"}, "no wheel for this image's Python", id="platform"),
        pytest.param({"metadata": ("Requires-Python: >=3.99",)}, "requires a different Python", id="python"),
    ],
)
def test_a_package_that_does_not_go_with_the_image_is_refused(
    changes: dict[str, Any], words: str, tmp_path: Path, install: Install
) -> None:
    wanted = lock(tmp_path, wheel(tmp_path, "alpha", **changes))
    assert words in refused(install, wanted)
    assert not (tmp_path / "out" / ABI).exists()


def test_an_image_with_another_torch_is_seen_at_the_second_start(
    tmp_path: Path, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = lock(tmp_path, wheel(tmp_path, "alpha", metadata=("Requires-Dist: torch>=2",)))
    install(wanted)
    info = tmp_path / "image" / "torch-1.9.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 1.9\n")
    monkeypatch.syspath_prepend(info.parent)
    assert "needs torch>=2, and the image has torch 1.9" in refused(install, wanted)
    assert (tmp_path / "out" / ABI).exists()


def test_the_size_of_a_download_is_reported(
    tmp_path: Path, served: Path, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installer, "_SAY_SECONDS", 0)
    line = wheel(served, "alpha", files={"alpha.py": "#" * 3 * 2**20})
    stream = io.StringIO()
    bundled = packed(lock(tmp_path, line, options=("--no-index",)), tmp_path)
    installer.install(bundled, tmp_path / "out", Log("w", stream=stream))
    assert "event=packages_progress doing=download packages=1 of_packages=1 mib=3 of_mib=3" in stream.getvalue()


def test_a_page_that_names_another_python_is_believed(tmp_path: Path, served: Path, install: Install) -> None:
    line = wheel(served, "alpha")
    link = '<a href="alpha-1.0-py3-none-any.whl" data-requires-python="&gt;=3.99">alpha-1.0-py3-none-any.whl</a>'
    (served / "index.html").write_text(link)
    wanted = lock(tmp_path, line, options=("--no-index",))
    assert "alpha==1.0 needs Python >=3.99, which the image's is not" in refused(install, wanted)


def test_a_version_that_is_not_there_is_named(tmp_path: Path, install: Install) -> None:
    line = wheel(tmp_path, "alpha").replace("1.0", "1.1")
    assert "alpha==1.1 is not in the index" in refused(install, lock(tmp_path, line))


def test_an_index_that_is_not_reached_is_an_error_that_may_pass(
    tmp_path: Path, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_RETRIES", "1")
    wanted = lock(tmp_path, wheel(tmp_path, "alpha"), options=(f"--index-url {NOWHERE}",))
    assert "the package index can't be reached: 127.0.0.1" in refused(install, wanted, TrainerError)


def test_a_lock_for_another_python_installs_nothing(tmp_path: Path, install: Install) -> None:
    name, _, digest = wheel(tmp_path, "alpha").partition(" ")
    install(lock(tmp_path, f"{name} ; python_version < '3' {digest}"))
    assert [path.name for path in (tmp_path / "out" / ABI).iterdir()] == ["manifest.json"]
