"""The device plug-in towards a kubelet: what it registers, lists and allocates."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from localcloud.kube.gpus import plugin
from localcloud.kube.gpus.plugin import API, Plugin
from localcloud.kube.rpc import Rpc, handler, serve

CDI = frozenset({"cdi-cri"})
GPUS = ["/dev/nvidia0", "/dev/nvidia1"]


class Kubelet:
    """The kubelet's end: it takes registrations in a folder, and asks the plug-in that has registered."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.registered: list[Any] = []
        self.told = threading.Event()
        service = {"Register": Rpc(API["RegisterRequest"], API["Empty"], self._register)}
        self.server = serve(folder / plugin.KUBELET_SOCKET, [handler("v1beta1.Registration", service)])

    def _register(self, request: Any, _: grpc.ServicerContext) -> Any:
        self.registered.append(request)
        self.told.set()
        return API["Empty"]()

    @contextlib.contextmanager
    def channel(self) -> Iterator[grpc.Channel]:
        with grpc.insecure_channel(f"unix:{self.folder / self.registered[-1].endpoint}") as found:
            yield found

    def listed(self) -> list[tuple[str, str]]:
        """The first answer of ListAndWatch."""
        with self.channel() as channel:
            call = channel.unary_stream(
                "/v1beta1.DevicePlugin/ListAndWatch",
                request_serializer=API["Empty"].SerializeToString,
                response_deserializer=API["ListAndWatchResponse"].FromString,
            )(API["Empty"](), timeout=60)
            first = next(call)
            call.cancel()
        return [(each.ID, each.health) for each in first.devices]

    def allocated(self, *wanted: list[str]) -> list[Any]:
        """What each container gets."""
        requests = [API["ContainerAllocateRequest"](devices_ids=ids) for ids in wanted]
        with self.channel() as channel:
            call = channel.unary_unary(
                "/v1beta1.DevicePlugin/Allocate",
                request_serializer=API["AllocateRequest"].SerializeToString,
                response_deserializer=API["AllocateResponse"].FromString,
            )
            answer = call(API["AllocateRequest"](container_requests=requests), timeout=60)
        return list(answer.container_responses)


@pytest.fixture
def kubelet(tmp_path: Path) -> Iterator[Kubelet]:
    made = Kubelet(tmp_path)
    yield made
    made.server.stop(None)


@contextlib.contextmanager
def running(kubelet: Kubelet, strategies: frozenset[str] = CDI) -> Iterator[threading.Thread]:
    thread = threading.Thread(
        target=plugin.serve_until_the_kubelet_restarts, args=(Plugin(GPUS, strategies), kubelet.folder)
    )
    thread.start()
    assert kubelet.told.wait(60)
    try:
        yield thread
    finally:
        (kubelet.folder / plugin.SOCKET).unlink(missing_ok=True)
        thread.join()


def test_the_kubelet_is_told_the_resource_and_gets_a_list_of_healthy_gpus(kubelet: Kubelet) -> None:
    with running(kubelet):
        (request,) = kubelet.registered
        assert (request.version, request.resource_name) == ("v1beta1", "nvidia.com/gpu")
        assert kubelet.listed() == [("/dev/nvidia0", "Healthy"), ("/dev/nvidia1", "Healthy")]


def test_each_container_gets_the_devices_of_its_gpus(kubelet: Kubelet) -> None:
    with running(kubelet):
        one, two = kubelet.allocated(["/dev/nvidia1"], ["/dev/nvidia0"])
    assert [(each.container_path, each.host_path) for each in one.devices] == [("/dev/nvidia1", "/dev/nvidia1")]
    assert [each.host_path for each in two.devices] == ["/dev/nvidia0"]
    assert dict(one.envs) == {}


def test_without_cdi_a_container_gets_a_variable_and_no_device(kubelet: Kubelet) -> None:
    # As on EKS' images: https://github.com/awslabs/amazon-eks-ami/issues/2706
    with running(kubelet, frozenset({"envvar"})):
        (one,) = kubelet.allocated(["/dev/nvidia0"])
    assert list(one.devices) == []
    assert dict(one.envs) == {"NVIDIA_VISIBLE_DEVICES": "/dev/nvidia0"}


def test_a_kubelet_that_starts_again_is_told_again(kubelet: Kubelet) -> None:
    with running(kubelet) as first:
        kubelet.told.clear()
        (kubelet.folder / plugin.SOCKET).unlink()  # a kubelet that starts deletes all sockets
        first.join()
    with running(kubelet):
        assert len(kubelet.registered) == 2


def test_gpus_are_found_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for name in ("nvidia10", "nvidia2", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()
    assert plugin.found(tmp_path) == ["/dev/nvidia2", "/dev/nvidia10"]


def test_without_a_gpu_it_ends_with_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert plugin.run({"FAIL_ON_INIT_ERROR": "true"}, devices=tmp_path) == 1
    assert "no NVIDIA device found: the node has no GPU, or this container lacks privileges" in capsys.readouterr().err


@pytest.mark.skipif(bool(plugin.found()), reason="it would register the GPUs of this machine")
def test_it_ends_when_its_pod_is_deleted() -> None:
    command = [sys.executable, "-m", "localcloud.kube.gpus"]
    environment = {**os.environ, "FAIL_ON_INIT_ERROR": "false"}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert "no NVIDIA device found" in process.stderr.readline()
        process.terminate()
        assert process.wait(60) == 0


def test_messages_have_the_field_numbers_of_the_api() -> None:
    response = API["ContainerAllocateResponse"](devices=[API["DeviceSpec"](host_path="/d", permissions="rw")])
    assert response.SerializeToString() == b"\x1a\x08\x12\x02/d\x1a\x02rw"  # field 3 of api.proto, with 2 and 3
    assert API["AllocateRequest"].FromString(b"\x0a\x04\x0a\x02id").container_requests[0].devices_ids == ["id"]
