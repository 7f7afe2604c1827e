"""The image of Karpenter's controller, and its digest."""

from __future__ import annotations

import pytest

from tests import graph
from workloads import karpenter


@pytest.mark.parametrize(
    ("image", "repository", "tag", "digest"),
    [
        pytest.param("public.ecr.aws/k/controller:1.14.0", "public.ecr.aws/k/controller", "1.14.0", "", id="tag"),
        pytest.param("localcloud/karpenter:1.14.0", "localcloud/karpenter", "1.14.0", "", id="no-registry"),
        pytest.param("hub:5000/karpenter", "hub:5000/karpenter", "", "", id="port"),
        pytest.param("hub:5000/k:1@sha256:ab", "hub:5000/k", "1", "sha256:ab", id="digest"),
    ],
)
def test_the_controllers_image_is_the_one_that_was_set(image: str, repository: str, tag: str, digest: str) -> None:
    assert karpenter.image_values(image, "oci://hub/karpenter") == {
        "repository": repository,
        "tag": tag,
        "digest": digest,
    }


def test_the_public_image_has_the_digest_of_its_published_chart() -> None:
    image = {"repository": "public.ecr.aws/karpenter/controller", "tag": karpenter.VERSION}
    stack = graph.defaults()
    assert karpenter.image_values(stack["karpenterImage"], stack["karpenterCharts"]) == image
    assert karpenter.image_values(stack["karpenterImage"], "charts") == {**image, "digest": ""}
