"""The encoding of CSI messages."""

from __future__ import annotations

from localcloud.kube.csi.driver import CSI


def test_messages_are_encoded_with_the_field_numbers_of_the_specification() -> None:
    request = CSI["NodePublishVolumeRequest"](volume_id="fs-1", target_path="/pod", readonly=True)
    request.volume_capability.mount.mount_flags.append("tls")
    request.volume_context["k"] = "v"
    data = request.SerializeToString()
    assert data.startswith(b"\x0a\x04fs-1\x22\x04/pod")  # fields 1 and 4 of csi.proto
    read = CSI["NodePublishVolumeRequest"].FromString(data)
    assert dict(read.volume_context) == {"k": "v"}
    assert list(read.volume_capability.mount.mount_flags) == ["tls"]


def test_fields_that_the_driver_does_not_know_are_skipped() -> None:
    publish_context = b"\x12\x06\x0a\x01a\x12\x01b"  # field 2, a map
    assert CSI["NodePublishVolumeRequest"].FromString(b"\x0a\x01x" + publish_context).volume_id == "x"
