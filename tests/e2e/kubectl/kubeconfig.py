"""The kubeconfig of the commands that begin with `kubectl`: with a token in place of the command that prints one.

`aws eks get-token` takes half a second of a core, five times what kubectl itself takes, and the tests ask thousands of
times whether something has happened. A token is good for 15 minutes.
https://docs.aws.amazon.com/eks/latest/userguide/cluster-auth.html
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

USED_SECONDS = 480
"""A command that begins with a token of this age may reconnect for another seven minutes."""


def with_token(kubeconfig: Path, environment: Mapping[str, str]) -> Path:
    """Return a copy of a kubeconfig in which the users have tokens; the path itself if there is no such file.

    A user keeps the command if it fails. The copy is written again when it is old or the file has changed.
    """
    copy = kubeconfig.with_name("kubeconfig-of-tests")
    if not kubeconfig.exists():
        return kubeconfig
    written, changed = (path.stat().st_mtime if path.exists() else 0.0 for path in (copy, kubeconfig))
    if written < changed or written < time.time() - USED_SECONDS:
        document = yaml.safe_load(kubeconfig.read_text()) or {}
        for entry in document.get("users") or ():
            entry["user"] = _token(entry["user"], environment)
        draft = copy.with_suffix(".new")
        draft.touch(mode=0o600)
        draft.write_text(yaml.safe_dump(document))
        draft.replace(copy)
    return copy


def _token(user: dict[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    if "exec" not in user:
        return user
    command = [user["exec"]["command"], *user["exec"]["args"]]
    asked = subprocess.run(command, env={**environment}, capture_output=True, text=True, check=False)
    return {"token": json.loads(asked.stdout)["status"]["token"]} if asked.returncode == 0 else user
