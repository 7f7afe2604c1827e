"""The root file system of a node: a folder of its own, with parts of the host mounted into it.

    prepare(root, names)                     # folders, links and /etc
    copy_image_databases(image, root / "var/lib/containerd")
    plan = mounts(directory, sources)        # what init mounts, see init.py

Programs and libraries come from the host, read-only, so a node starts in a fraction of a second and takes no space for
them. Everything else, /etc, /root, /home and /var among it, belongs to the node and is deleted with it.
"""

from __future__ import annotations

import shutil
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from localcloud.kube.nodes import config

FOLDERS = (
    "dev", "proc", "sys", "run", "mnt", "media", "srv", "boot", "home", "root", "opt", "var/cache", "var/lib/kubelet",
    "var/lib/containerd", "var/log/pods", "etc/kubernetes", "etc/containerd", "etc/cni/net.d",
)  # fmt: skip
PROGRAM_FOLDERS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")  # links into /usr, or folders of old
LINKS = {"var/run": "/run", "etc/mtab": "/proc/self/mounts", "etc/os-release": "../usr/lib/os-release"}
# Read by the dynamic linker and by the network tools; they hold nothing private.
COPIED = ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "protocols", "services", "nsswitch.conf")
PACKAGE = Path(__file__).resolve().parents[2]
CONTENT = "io.containerd.content.v1.content"


@dataclass(frozen=True)
class Sources:
    """Where on the host the parts of a node are.

    Args:
        image: The containerd root with the imported images.
        trainer: The folder of Python packages that containers get.
        programs: Executables by name, such as kubelet.
        efs: The folder of all EFS file systems.
        lustre: The folder of all file systems of FSx for Lustre.
        logs: The folder of the instance's logs.
    """

    image: Path
    trainer: Path
    programs: Mapping[str, Path]
    efs: Path
    lustre: Path
    logs: Path


@dataclass(frozen=True)
class Python:
    """The Python that runs the agents of a node: where it is on the host, and how a node starts it."""

    prefix: Path
    packages: Path
    executable: str

    @classmethod
    def current(cls) -> Python:
        """The Python of this process; one below /usr is at the same place in a node."""
        prefix = Path(sys.base_prefix).resolve()
        executable = Path(sys.executable).resolve()
        if prefix.is_relative_to("/usr"):
            return cls(prefix, Path(sysconfig.get_path("purelib")), str(executable))
        inside = f"{config.TOOLS}/python/{executable.relative_to(prefix)}"
        return cls(prefix, Path(sysconfig.get_path("purelib")), inside)

    @property
    def environment(self) -> dict[str, str]:
        """The environment in which it finds its own library, its packages and this project."""
        return {
            "LD_LIBRARY_PATH": f"{config.TOOLS}/python/lib",
            "PYTHONPATH": f"{config.TOOLS}/checkout:{config.TOOLS}/packages",
            "PYTHONDONTWRITEBYTECODE": "1",
        }


def prepare(root: Path, name: str, address: str, machine_id: str) -> None:
    """Make the folders and links of a node's root, and the files of its /etc.

    Args:
        name: The node's host name.
        machine_id: 32 hexadecimal digits.
    """
    for folder in FOLDERS:
        (root / folder).mkdir(parents=True, exist_ok=True)
    (root / "root").chmod(0o700)
    for folder in ("tmp", "var/tmp"):
        (root / folder).mkdir(exist_ok=True)
        (root / folder).chmod(0o1777)
    for folder in PROGRAM_FOLDERS:
        if Path("/", folder).is_symlink():
            (root / folder).symlink_to(Path("/", folder).readlink())
    for link, target in LINKS.items():
        (root / link).symlink_to(target)
    for entry in COPIED:
        _copy(Path("/etc", entry), root / "etc" / entry)
    for entry, text in etc_files(name, address, machine_id).items():
        (root / "etc" / entry).write_text(text)


def etc_files(name: str, address: str, machine_id: str) -> dict[str, str]:
    """The files of a node's /etc that are not copies, by name."""
    return {
        "passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
        "group": "root:x:0:\ntty:x:5:\nnogroup:x:65534:\n",
        "hostname": f"{name}\n",
        "hosts": f"127.0.0.1 localhost\n{address} {name}\n",
        "machine-id": f"{machine_id}\n",
        "resolv.conf": "",
    }


def mounts(directory: Path, sources: Sources, python: Python) -> dict[str, list[list[str]]]:
    """The mounts of a node, for init's plan.

    Args:
        directory: The node's own, in which `root` is to become its root.
    """
    layers = [
        [str(layer), f"{config.CONTAINERD_ROOT}/{config.SNAPSHOTS}/{layer.name}"] for layer in layers_of(sources.image)
    ]
    own = [
        [str(directory / "services"), f"{config.BROUGHT}/services"],
        [str(directory / "control"), f"{config.BROUGHT}/control"],
        [str(directory / "cni"), config.CNI_CONFIG_DIR],
    ]
    names = [f"{directory.name}-{name}.log" for name in config.SERVICES]
    logs = [[str(sources.logs / f"node-{name}"), f"{config.BROUGHT}/logs/node-{name}"] for name in names]
    content = [sources.image / CONTENT, directory / "content" / "upper", directory / "content" / "work"]
    return {
        "read_only": [*_programs(sources, python), *layers, *own],
        "read_write": [[str(sources.efs), config.EFS_DIR], [str(sources.lustre), config.LUSTRE_DIR], *logs],
        "overlays": [[*map(_escaped, content), f"{config.CONTAINERD_ROOT}/{CONTENT}"]],
    }


def layers_of(image: Path) -> list[Path]:
    """The unpacked layers of the images; a node mounts them."""
    return sorted((image / config.SNAPSHOTS).iterdir())


def copy_image_databases(image: Path, target: Path) -> None:
    """Give a node a containerd root with the image's databases; blobs and layers are left to be mounted."""
    contents = {*layers_of(image), image / CONTENT}

    def mounted(folder: str, names: list[str]) -> set[str]:
        return set(names) if Path(folder) in contents else set()

    shutil.copytree(image, target, ignore=mounted, dirs_exist_ok=True)


def _programs(sources: Sources, python: Python) -> list[list[str]]:
    found = ["/usr", *(f"/{name}" for name in PROGRAM_FOLDERS if _is_real_folder(Path("/", name)))]
    pairs = [[path, path] for path in found]
    pairs += [[str(path), program(name)] for name, path in sources.programs.items()]
    if python.executable.startswith(config.TOOLS):
        pairs.append([str(python.prefix), f"{config.TOOLS}/python"])
    pairs.append([str(PACKAGE), f"{config.TOOLS}/checkout/localcloud"])
    pairs += [[str(python.packages), f"{config.TOOLS}/packages"], [str(sources.trainer), config.TRAINER_DIR]]
    return pairs


def program(name: str) -> str:
    """Where a node finds an executable of `Sources.programs`."""
    return f"{config.TOOLS}/bin/{name}"


def _is_real_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True)
    elif source.exists():
        shutil.copy2(source, target)


def _escaped(path: Path) -> str:
    """A path as an option of an overlay mount, where colons and commas separate."""
    return str(path).replace("\\", "\\\\").replace(":", "\\:").replace(",", "\\,")
