"""Makes what every simulated node starts from: a containerd root with all images imported and unpacked.

A node's containerd then needs neither a registry nor an import: its root is a copy by hard links, ready in a
fraction of a second. The images are a small Debian or Ubuntu (of this machine's release, from its own packages, so
that pods have the Python that the trainer's packages are built for), and static binaries on nothing.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from scripts.toolchain import debian, paths
from scripts.toolchain.commands import Console, run
from scripts.toolchain.errors import StepFailed, ToolMissing
from scripts.toolchain.found import locate
from scripts.toolchain.image.archive import Image, write_archive, write_layer
from scripts.toolchain.steps import Step, draft_of, readable
from scripts.toolchain.table import (
    COREDNS,
    DEVICE_PLUGIN,
    ETCD,
    KARPENTER,
    MONITORING_TOOLS,
    PROMETHEUS,
    TOOLS,
    TORCH,
)

REGISTRY = "docker.io/localcloud"
# bash, coreutils and util-linux are essential packages, so they come of themselves.
BASE_PACKAGES = ("python3", "libstdc++6", "ca-certificates", "nftables", "iproute2", "procps")
"""The second is what numpy and torch are linked with: Debian's apt brings it, Ubuntu's does not."""
SITE_PACKAGES = "/opt/site-packages"
AGENT_FOLDERS = tuple(f"/driver-root/opt/localcloud/{name}" for name in ("checkout", "packages"))
"""Where the device plug-in finds its program: on its node, as NVIDIA's finds the driver there. Its manifest mounts the
node's root at /driver-root."""

KARPENTER_PATH = "/usr/local/bin/karpenter"
PROMETHEUS_PATH = "/bin/prometheus"  # as in its own image
_UNREAD = ("man", "locale", "doc", "info", "bash-completion")
_START_SECONDS = 30.0


def step() -> Step:
    """The nodes' image, of what was built before. With Prometheus in the list it has that too, so it comes after it."""
    inside = ("etcd", "coredns", "karpenter", "prometheus")
    return Step("node image", done=lambda: readable(folder()), run=_build, disk_gib=1.5, after=(debian.STEP, *inside))


def folder() -> Path:
    """Where the result lies: another recipe makes another folder, as do other plug-ins of CoreDNS, and Prometheus."""
    layers = Path("layers")
    recipe = [base_command(layers), *(f"{image.name} {image.config} {image.env}" for image in images(layers))]
    recipe.append(paths.tool_path(TOOLS["coredns"]).parent.name)
    pause = (paths.HERE / "pause.c").read_bytes()
    return paths.cache() / "node-image" / paths.key_of("\n".join(map(str, recipe)).encode(), pause)


def images(work: Path) -> list[Image]:
    """The nodes' images, over the layers in `work`."""
    base = work / "base.tar"
    shell = {"Cmd": ["bash"]}
    packages = {"PYTHONPATH": SITE_PACKAGES}
    agents = {"PYTHONPATH": ":".join(AGENT_FOLDERS)}
    etcd, coredns, karpenter = (version.removeprefix("v") for version in (ETCD, COREDNS, KARPENTER))
    plugin = DEVICE_PLUGIN.removeprefix("v")
    found = [
        Image(f"{REGISTRY}/pause:1", work / "pause.tar", {"Entrypoint": ["/pause"]}),
        Image(f"{REGISTRY}/shell:1", base, shell),
        Image(f"{REGISTRY}/pytorch:{TORCH}", base, {**shell, "WorkingDir": "/workspace"}, packages),
        Image(f"{REGISTRY}/aws-cli:1", base, {"Entrypoint": ["/usr/local/bin/aws"], "WorkingDir": "/aws"}, packages),
        Image(f"{REGISTRY}/k8s-device-plugin:{plugin}", base, {"Entrypoint": ["nvidia-device-plugin"]}, agents),
        Image(f"{REGISTRY}/etcd:{etcd}", work / "etcd.tar", {"Cmd": ["/usr/local/bin/etcd"]}),
        Image(f"{REGISTRY}/coredns:{coredns}", work / "coredns.tar", {"Entrypoint": ["/usr/local/bin/coredns"]}),
        Image(f"{REGISTRY}/karpenter:{karpenter}", work / "karpenter.tar", {"Entrypoint": [KARPENTER_PATH]}),
    ]
    return [*found, prometheus(work)] if prometheus_is_built() else found


def prometheus_is_built() -> bool:
    """Whether there is a Prometheus to put into the image: it is built only where something needs it."""
    return locate(MONITORING_TOOLS["prometheus"]) is not None


def prometheus(work: Path) -> Image:
    """Prometheus' image, over its layer in `work`."""
    name = f"{REGISTRY}/prometheus:{PROMETHEUS.removeprefix('v')}"
    return Image(name, work / "prometheus.tar", {"Entrypoint": [PROMETHEUS_PATH]})


def base_command(target: Path) -> list[str]:
    """The mmdebstrap command that writes the layer of a small Debian or Ubuntu. Its sources come on standard input."""
    options = ["--variant=minbase", f"--include={','.join(BASE_PACKAGES)}"]
    options += [f"--aptopt={option}" for option in ('APT::Install-Recommends "false"', 'Acquire::Languages "none"')]
    options += [f"--dpkgopt=path-exclude=/usr/share/{folder}/*" for folder in _UNREAD]
    modules = {
        "aws": "awscli",
        "nvidia-device-plugin": "localcloud.kube.gpus",
        "torchrun": "torch.distributed.run",  # as in PyTorch's own image
    }
    hook = " && ".join(
        f'printf %s {shlex.quote(_command(module))} >"$1/usr/local/bin/{name}" && chmod 755 "$1/usr/local/bin/{name}"'
        for name, module in modules.items()
    )
    hook += (
        ' && ln -s /usr/bin/python3 "$1/usr/local/bin/python"'
        f' && mkdir -p "$1{SITE_PACKAGES}" "$1/workspace" "$1/aws" && : >"$1/etc/apt/sources.list"'
    )
    return ["mmdebstrap", *options, f"--customize-hook={hook}", debian.here().codename, str(target), "-"]


def _command(module: str) -> str:
    return f'#!/bin/sh\nexec python3 -m {module} "$@"\n'


def containerd_config(root: Path, run_folder: Path) -> str:
    """A containerd that keeps to `root` and `run_folder` and can do nothing but import."""
    return (
        "version = 2\n"
        f'root = "{root}"\nstate = "{run_folder}/state"\n'
        'disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.internal.v1.restart"]\n'
        f'[grpc]\naddress = "{run_folder}/containerd.sock"\n'
        f'[plugins."io.containerd.internal.v1.opt"]\npath = "{run_folder}/opt"\n'
    )


def _build(console: Console, log: Path) -> None:
    with draft_of(folder()) as draft, tempfile.TemporaryDirectory(prefix="tidewater-image-") as name:
        work = Path(name)
        draft.mkdir()
        _layers(work, console, log)
        archive = write_archive(work / "images.tar", images(work))
        root = draft / "containerd"
        _import(archive, root, work / "run", console, log)
        for database in paths.NODE_IMAGE_DATABASES:
            if not (root / database).is_file():
                raise StepFailed(f"containerd left no {database}: its version differs from what this was written for")


def _layers(work: Path, console: Console, log: Path) -> None:
    pause = work / "pause"
    run(["gcc", "-static", "-Os", "-s", "-o", pause, paths.HERE / "pause.c"], log=log, console=console)
    write_layer(work / "pause.tar", {"/pause": pause})
    etcd = {f"/usr/local/bin/{name}": _binary(name) for name in ("etcd", "etcdctl")}
    write_layer(work / "etcd.tar", etcd, ("/var/lib/etcd", "/tmp"))
    write_layer(work / "coredns.tar", {"/usr/local/bin/coredns": _binary("coredns")}, ("/etc/coredns", "/tmp"))
    write_layer(work / "karpenter.tar", {KARPENTER_PATH: _binary("karpenter")}, ("/tmp",))
    if prometheus_is_built():
        write_layer(work / "prometheus.tar", {PROMETHEUS_PATH: _binary("prometheus")}, ("/tmp",))
    run(base_command(work / "base.tar"), log=log, console=console, stdin=_sources())


def _binary(name: str) -> Path:
    tool = {**TOOLS, **MONITORING_TOOLS}[name]
    path = locate(tool)
    if path is None:
        raise ToolMissing(f"{name} {tool.version}")
    return path


def _sources() -> str:
    """The host's own sources of packages, which are the ones that this network reaches."""
    system = debian.here()
    line = "deb $(REPO_URI) $(RELEASE) $(COMPONENT)"
    listed = subprocess.run(
        ["apt-get", "indextargets", "--format", line, "Created-By: Packages", f"Origin: {system.distribution.title()}"],
        capture_output=True,
        text=True,
        check=False,
    )
    sources = sorted({line for line in listed.stdout.splitlines() if f" {system.codename}" in line})
    if not sources:
        raise StepFailed(
            f"apt has no sources of {system.name} ({system.codename}): add them to /etc/apt/sources.list.d"
        )
    return "\n".join(sources) + "\n"


def _import(archive: Path, root: Path, run_folder: Path, console: Console, log: Path) -> None:
    run_folder.mkdir()
    config = run_folder / "config.toml"
    config.write_text(containerd_config(root, run_folder))
    socket = run_folder / "containerd.sock"
    with log.open("ab") as output:
        daemon = subprocess.Popen(
            ["containerd", "--config", config],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        _await(socket, daemon, log)
        ctr = ["ctr", "--address", str(socket), "--namespace", "k8s.io"]
        run([*ctr, "images", "import", "--snapshotter", "overlayfs", str(archive)], log=log, console=console)
    finally:
        daemon.terminate()
        try:
            daemon.wait(timeout=_START_SECONDS)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()
    shutil.rmtree(root / "tmpmounts", ignore_errors=True)


def _await(socket: Path, daemon: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and daemon.poll() is None:
        if socket.exists():
            return
        time.sleep(0.1)
    raise StepFailed(f"containerd didn't start: see {log}")
