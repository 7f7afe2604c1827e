"""What pyproject.toml can't say of the wheel: elasticdl's gRPC code is compiled before the packages are collected."""

from __future__ import annotations

import runpy
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

GENERATOR = Path(__file__).with_name("packages") / "elasticdl/src/elasticdl/rpc/generate.py"


class Build(build_py):
    """Compile the definition unless its code is up to date."""

    def run(self) -> None:
        """See the class."""
        generator = runpy.run_path(str(GENERATOR))
        if generator["problem"]():
            generator["generate"]()
        super().run()


if __name__ == "__main__":
    setup(cmdclass={"build_py": Build})
