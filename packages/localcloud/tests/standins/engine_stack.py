"""A Pulumi project in a folder of its own, run by the real engine; the plug-ins are installed as `activate` does it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scripts.toolchain import plugins


class EngineStack:
    """One stack; every command is the unmodified CLI's."""

    def __init__(
        self,
        folder: Path,
        environment: Mapping[str, str] | None = None,
        standins: tuple[str, ...] = plugins.STANDINS,
    ) -> None:
        self.folder = folder
        plugins.install(folder / "bin", folder / "home", Path(sys.executable), standins)
        (folder / "Pulumi.yaml").write_text("name: t\nruntime: python\n")
        self.environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("PULUMI_", "AWS_"))},
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "LOCALCLOUD_PYTHON": sys.executable,
            "PULUMI_HOME": str(folder / "home"),
            "PULUMI_BACKEND_URL": f"file://{folder}?metadata=skip",
            "PULUMI_CONFIG_PASSPHRASE": "x",
            "PULUMI_SKIP_UPDATE_CHECK": "true",
            "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
            "PULUMI_ENABLE_LEGACY_PLUGIN_SEARCH": "true",
            **(environment or {}),
        }
        self.program("")
        self.pulumi("stack", "init", "dev")

    def program(self, text: str) -> None:
        """Set the program."""
        (self.folder / "__main__.py").write_text(text)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command."""
        argv = [str(self.folder / "bin" / "pulumi"), *arguments, "--non-interactive"]
        pipe = subprocess.PIPE
        return subprocess.Popen(argv, cwd=self.folder, env=self.environment, stdout=pipe, stderr=pipe, text=True)

    def pulumi(self, *arguments: str, fails: bool = False) -> str:
        """Run a command until it exits and return what it printed."""
        process = self.start(*arguments)
        output, errors = process.communicate(timeout=300)
        assert (process.returncode != 0) == fails, output + errors
        return output + errors

    def up(self, *arguments: str, fails: bool = False) -> str:
        """Run `pulumi up` without a preview."""
        return self.pulumi("up", "--yes", "--skip-preview", *arguments, fails=fails)

    def outputs(self) -> dict[str, Any]:
        """Return the stack's outputs with their secrets decrypted."""
        found: dict[str, Any] = json.loads(self.pulumi("stack", "output", "--json", "--show-secrets"))
        return found

    def resources(self) -> list[dict[str, Any]]:
        """Return the resources in the state."""
        exported: dict[str, Any] = json.loads(self.pulumi("stack", "export"))
        recorded: list[dict[str, Any]] = exported["deployment"]["resources"]
        return recorded

    def state(self) -> str:
        """Return the text of the state file."""
        return (self.folder / ".pulumi/stacks/t/dev.json").read_text()
