"""uv, pip, Go and apt use a person's proxy and the system's certificates, whatever variables each of them reads."""

from __future__ import annotations

import os
import shutil
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from scripts.toolchain import downloads, paths, python_packages
from tests import tls

PROXY = "http://proxy:3128"
BUNDLE = "/h/ca.pem"
BASE = Path(sys.base_prefix, "bin", f"python{sys.version_info[0]}.{sys.version_info[1]}")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param({}, {}, id="none"),
        pytest.param({"HTTPS_PROXY": "a"}, {"HTTPS_PROXY": "a", "https_proxy": "a"}, id="upper case"),
        pytest.param({"http_proxy": "a"}, {"HTTP_PROXY": "a", "http_proxy": "a"}, id="lower case"),
        pytest.param(
            {"all_proxy": "a", "HTTP_PROXY": "b", "NO_PROXY": "c"},
            {
                "ALL_PROXY": "a",
                "all_proxy": "a",
                "HTTPS_PROXY": "a",
                "https_proxy": "a",
                "HTTP_PROXY": "b",
                "http_proxy": "b",
                "NO_PROXY": "c",
                "no_proxy": "c",
            },
            id="all, with an exception",
        ),
    ],
)
def test_every_tool_finds_the_proxy_under_its_own_variable(given: dict[str, str], expected: dict[str, str]) -> None:
    made = downloads.environment(given)
    assert {name: value for name, value in made.items() if name.lower().endswith("_proxy")} == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param({}, {"UV_SYSTEM_CERTS": "true", "REQUESTS_CA_BUNDLE": "{store}"}, id="the system's"),
        pytest.param(
            {"SSL_CERT_FILE": BUNDLE}, {"UV_SYSTEM_CERTS": "true", "REQUESTS_CA_BUNDLE": BUNDLE}, id="another file"
        ),
        pytest.param({"UV_SYSTEM_CERTS": "0", "PIP_CERT": "/p"}, {}, id="a tool's own settings"),
        pytest.param({"UV_NATIVE_TLS": "0", "REQUESTS_CA_BUNDLE": "/p"}, {}, id="older settings"),
    ],
)
def test_certificates_are_the_systems_unless_a_person_names_others(
    given: dict[str, str], expected: dict[str, str], tmp_path: Path
) -> None:
    store = tmp_path / "store.crt"
    store.touch()
    added = {name: value.format(store=store) for name, value in expected.items()}
    assert downloads.environment(given, store) == {**given, **added}


# A step of the set-up, in a process of its own: it can have a system's store of its own.
STEP = """
import shutil, sys
from pathlib import Path
from scripts.toolchain import debian, go_tools, python_packages, table
from scripts.toolchain.commands import Console
from scripts.toolchain.errors import StepFailed

tool, (uv, pip, log) = sys.argv[1], map(Path, sys.argv[2:])
debian.PACKAGES = (debian.Package("nothing", "/nothing", "a test"),)
pip_step, uv_step, *_ = python_packages.steps()
run = python_packages.run
def run_with_a_copy(command, **more):
    if "venv" in command:  # takes 5 s, and downloads nothing
        shutil.copytree(pip, command[-1], symlinks=True)
    else:
        run(command, **more)
python_packages.run = run_with_a_copy
if tool == "uv":
    python_packages._uv = lambda: uv
(go_step,) = go_tools.steps({"coredns": table.TOOLS["coredns"]})
try:
    {"apt": debian.step(), "pip": pip_step, "uv": uv_step, "go": go_step}[tool].run(Console(), log)
except StepFailed as error:
    print(error)
"""


def said(tool: str, registry: str, folder: Path, pip: Path, *under: str, **environ: str) -> str:
    """Return why a step fails that downloads from `registry`, in a shell without settings of this machine.

    Args:
        tool: What downloads.
        registry: An URL; no package is there, so each step fails.
        folder: For everything that the step writes.
        pip: An environment with pip.
        under: A command that runs the process with the step.
        environ: Further variables.
    """
    apt = folder / "apt"
    for name in ("lists/partial", "archives/partial", "etc"):
        (apt / name).mkdir(parents=True)
    (apt / "status").touch()
    (apt / "etc" / "sources.list").write_text(f"deb [trusted=yes] {registry} stable main\n")
    paths_of_apt = {"Etc": "etc", "State": "", "State::lists": "lists", "State::status": "status", "Cache": ""}
    options = {f"Dir::{name}": apt / part for name, part in paths_of_apt.items()}
    lines = [f'{name} "{value}";' for name, value in {**options, "APT::Sandbox::User": "root"}.items()]
    (apt / "apt.conf").write_text("\n".join([*lines, 'Acquire::Retries "0";']))
    shell = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "TIDEWATER_CACHE": str(folder / "cache"),
        "APT_CONFIG": str(apt / "apt.conf"),
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_INDEX_URL": registry,
        "PIP_RETRIES": "0",
        "UV_DEFAULT_INDEX": registry,
        "UV_HTTP_RETRIES": "0",
        "UV_NO_CACHE": "1",
        "GOPROXY": registry,
        "GOSUMDB": "off",
        "GOFLAGS": "",
        "GOMODCACHE": str(folder / "modules"),
    }
    command: list[str | Path] = [*under, BASE, "-c", STEP, tool, python_packages._uv(), pip, folder / "log"]
    done = subprocess.run(
        command, cwd=paths.CHECKOUT, env={**shell, **environ}, capture_output=True, text=True, timeout=300, check=False
    )
    assert "ended with status" in done.stdout, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def pip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an environment with pip, as the set-up makes one."""
    made = tmp_path_factory.mktemp("pip") / "environment"
    subprocess.run([BASE, "-m", "venv", made], check=True)
    return made


class Proxy(socketserver.StreamRequestHandler):
    """Refuses every request, and notes what it was for."""

    asked: ClassVar[list[str]] = []

    def handle(self) -> None:
        self.asked.append(self.rfile.readline().decode())
        self.wfile.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of a proxy; `Proxy.asked` has what it is asked for."""
    monkeypatch.setattr(Proxy, "asked", [])
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Proxy) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


TOOLS = ["apt", "pip", "uv", "go"]
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may install packages and make namespaces")


@needs_root
@pytest.mark.e2e
@pytest.mark.parametrize(
    ("tool", "variable"),
    [("apt", "HTTPS_PROXY"), ("pip", "HTTPS_PROXY"), ("uv", "all_proxy"), ("go", "all_proxy")],
)
def test_a_download_goes_through_the_persons_proxy(
    tool: str, variable: str, proxy: str, pip: Path, tmp_path: Path
) -> None:
    said(tool, "https://registry.invalid/simple", tmp_path, pip, **{variable: proxy})
    assert [line for line in Proxy.asked if "registry.invalid" in line]


AUTHORITY = "this machine doesn't know the authority that signed a server's certificate"


@needs_root
@pytest.mark.e2e
@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("known", [True, False], ids=["in the system's store", "unknown"])
def test_an_authority_in_the_systems_store_is_enough_and_an_unknown_one_is_named(
    known: bool, tool: str, pip: Path, tmp_path: Path
) -> None:
    """As in a company that inspects TLS: each server's certificate is signed by an authority of the company."""
    for name in ("certificates", "store", "step"):
        (tmp_path / name).mkdir()
    with tls.serving(tmp_path / "certificates") as (url, authority):
        shutil.copy(downloads.STORE, tmp_path / "store" / downloads.STORE.name)
        if known:
            shutil.copy(authority, tmp_path / "store" / downloads.STORE.name)
        script = f'mount --bind {tmp_path / "store"} {downloads.STORE.parent} && exec "$@"'
        found = said(tool, url, tmp_path / "step", pip, "unshare", "--mount", "sh", "-c", script, "sh")
    assert (AUTHORITY in found) is not known
    assert "update-ca-certificates" in found or known
    assert "can't be reached" not in found
