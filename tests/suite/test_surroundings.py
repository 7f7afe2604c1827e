"""What the tests take from the shell that starts them."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.sources import ROOT


def test_neither_a_proxy_nor_a_umask_of_the_shell_gets_to_the_tests() -> None:
    before = os.umask(0o022)
    os.umask(before)
    assert before == 0o022
    assert [name for name in os.environ if name.lower().endswith("_proxy")] == []


def test_they_do_not_either_from_a_shell_that_has_both() -> None:
    name = test_neither_a_proxy_nor_a_umask_of_the_shell_gets_to_the_tests.__name__
    environ = {**os.environ, "HTTP_PROXY": "http://proxy:1", "all_proxy": "socks5://proxy:1", "NO_PROXY": "intra"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"{__file__}::{name}"],
        cwd=ROOT,
        env=environ,
        umask=0o077,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
