"""How the engine starts the plug-in."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[5]
SOURCES = ROOT / "packages" / "localcloud" / "src"


def test_the_plug_in_finds_the_client_of_the_api_server_after_everything_else(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "$PYTHONPATH"\n')
    python.chmod(0o755)
    link = tmp_path / "pulumi-resource-kubernetes"
    link.symlink_to(SOURCES / "localcloud" / "standins" / "bin" / "pulumi-resource-kubernetes")
    environment = {**os.environ, "LOCALCLOUD_PYTHON": str(python), "PYTHONPATH": "/own"}
    done = subprocess.run([link], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip().split(os.pathsep) == [str(SOURCES), "/own", str(ROOT)]
