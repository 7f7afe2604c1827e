"""What ships is what is tested: the default image, the Dockerfile and the tests have the same torch."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from scripts.toolchain import table
from workloads import packages

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = (ROOT / "trainer" / "Dockerfile").read_text()


def default_image() -> str:
    return str(yaml.safe_load((ROOT / "Pulumi.yaml").read_text())["config"]["image"]["default"])


def test_the_default_image_has_the_torch_that_the_tests_run_with() -> None:
    locked = packages.locked(packages.LOCK.read_text())["torch"]
    assert default_image().startswith(f"pytorch/pytorch:{locked}-")
    assert locked == table.TORCH


def test_the_default_image_has_the_cuda_that_the_lock_brings() -> None:
    toolkit = packages.locked(packages.LOCK.read_text())["cuda-toolkit"]
    assert f"-cuda{'.'.join(toolkit.split('.')[:2])}-" in default_image()


def test_the_dockerfile_builds_from_an_exact_python_of_the_tests_and_installs_whole_locks_by_their_hashes() -> None:
    bases = {line.split()[1] for line in DOCKERFILE.splitlines() if line.startswith("FROM ")} - {"base"}
    (base,) = bases
    python = table.SYSTEMS[0].python_name
    assert re.fullmatch(rf"public\.ecr\.aws/docker/library/python:{re.escape(python)}\.\d+-slim-bookworm", base)
    copied = re.findall(r"^COPY (\S+)", DOCKERFILE, flags=re.MULTILINE)
    assert copied == ["tidewater/controller/requirements.txt", "trainer/requirements.txt"]
    installs = [line for line in DOCKERFILE.splitlines() if "pip install" in line]
    assert len(installs) == len(copied)
    assert all("--require-hashes -r /tmp/requirements.txt" in line for line in installs)
