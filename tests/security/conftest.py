"""The stacks that come with the project, brought up on a one-machine cloud of their own, one after the other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.checkout import Checkout
from tests.security.real import Real, bring_up


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Real]]:
    """Yield the stacks by the names that the waivers use. None is destroyed: its cloud is stopped."""
    copy = Checkout.copy_to(tmp_path_factory.mktemp("security") / "tidewater")
    files = {"local": None, "aws-dev": "Pulumi.aws-dev.yaml.example", "aws": "Pulumi.aws.yaml.example"}
    found = {}
    try:
        for name, file in files.items():
            found[name] = bring_up(copy, name, file)
            copy.run("python -m localcloud stop")
        yield found
    finally:
        copy.run("python -m localcloud stop", expect=None)
