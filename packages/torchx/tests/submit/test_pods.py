"""Pod templates: fields as of TorchX's own Kubernetes scheduler, and what a stack's namespace asks for."""

from __future__ import annotations

from typing import Any

import pytest
from tidewater_torchx.errors import Refused
from tidewater_torchx.submit.options import Options
from tidewater_torchx.submit.pods import Pod, claims, pod_template, resources
from torchx.components import utils
from torchx.specs import BindMount, DeviceMount, Resource, Role, VolumeMount, named_resources
from torchx.specs.named_resources_aws import EFA_DEVICE

from packages.torchx.tests.doubles import FACTS, role
from tidewater.contract.code import shipped
from tidewater.contract.stack import Facts

POD = Pod(labels={"a": "b"}, rank0="app-worker-0")


def template(given: Role, options: Options | None = None, **fields: Any) -> dict[str, Any]:
    return pod_template(given, fields.get("pod", POD), options or Options(), fields.get("facts"))


def container(given: Role, **fields: Any) -> dict[str, Any]:
    found: dict[str, Any] = template(given, **fields)["spec"]["containers"][0]
    return found


def test_requests_are_the_limits_without_what_the_node_needs() -> None:
    found = resources(Resource(cpu=2, gpu=4, memMB=3000), Options())
    assert found == {
        "limits": {"cpu": "2000m", "memory": "3000M", "nvidia.com/gpu": "4"},
        "requests": {"cpu": "1900m", "memory": "1976M", "nvidia.com/gpu": "4"},
    }


def test_what_the_node_needs_can_be_set() -> None:
    resource, options = Resource(cpu=2, gpu=0, memMB=3000), Options(reserved_millicpu=300, reserved_memmb=1000)
    assert resources(resource, options)["requests"] == {"cpu": "1700m", "memory": "2000M"}
    every = Options(reserved_millicpu=0, reserved_memmb=0)
    assert resources(resource, every)["requests"] == resources(resource, every)["limits"]


def test_a_small_request_is_not_negative_and_no_resource_is_none() -> None:
    assert resources(Resource(cpu=0.05, gpu=0, memMB=10), Options())["requests"] == {"cpu": "0m", "memory": "0M"}
    assert resources(Resource(cpu=-1, gpu=-1, memMB=-1), Options()) == {"limits": {}, "requests": {}}


@pytest.mark.parametrize(
    ("own", "option", "count"),
    [(4, None, "4"), (None, None, None), (4, 0, None), (4, 8, "8"), (None, 32, "32")],
)
def test_the_number_of_efa_devices_can_be_set(own: int | None, option: int | None, count: str | None) -> None:
    resource = Resource(cpu=1, gpu=0, memMB=1, devices={} if own is None else {EFA_DEVICE: own})
    assert resources(resource, Options(efa_device_count=option))["limits"].get(EFA_DEVICE) == count


def test_named_resources_of_aws_choose_their_instance_type_and_devices() -> None:
    found = template(role(resource=named_resources["aws_p4d.24xlarge"]))["spec"]
    assert found["nodeSelector"] == {"node.kubernetes.io/instance-type": "p4d.24xlarge"}
    assert found["containers"][0]["resources"]["limits"][EFA_DEVICE] == "4"


def test_the_command_the_image_and_the_ports_are_the_roles() -> None:
    found = container(role(entrypoint="main", args=["--a", "b"], port_map={"foo": 1234}))
    assert found["command"] == ["main", "--a", "b"]
    assert found["image"] == "img:1"
    assert found["ports"] == [{"name": "foo", "containerPort": 1234}]


def test_a_variable_may_be_a_field_of_the_pod() -> None:
    found = container(role(env={"IP": "[FIELD_PATH]status.podIP", "FOO": "bar"}))["env"]
    assert {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}} in found
    assert {"name": "FOO", "value": "bar"} in found


def test_every_replica_knows_its_number_replica_0_and_its_image() -> None:
    first, *rest = container(role(env={"TORCHX_REPLICA_ID": "7", "TORCHX_IMAGE": "other"}))["env"]
    path = "metadata.labels['torchx.pytorch.org/replica-id']"
    assert first == {"name": "TORCHX_REPLICA_ID", "valueFrom": {"fieldRef": {"fieldPath": path}}}
    assert rest == [
        {"name": "TORCHX_IMAGE", "value": "img:1"},
        {"name": "TORCHX_RANK0_HOST", "value": "app-worker-0"},
    ]


def test_shared_memory_is_as_large_as_the_memory() -> None:
    found = template(role())["spec"]
    assert found["volumes"] == [{"name": "dshm", "emptyDir": {"medium": "Memory"}}]
    assert found["containers"][0]["volumeMounts"] == [{"name": "dshm", "mountPath": "/dev/shm"}]


def test_istio_stays_away() -> None:
    assert template(role())["metadata"] == {"labels": {"a": "b"}, "annotations": {"sidecar.istio.io/inject": "false"}}


@pytest.mark.parametrize(
    ("mount", "volume", "place"),
    [
        pytest.param(
            BindMount(src_path="/src", dst_path="/dst", read_only=True),
            {"hostPath": {"path": "/src"}},
            {"mountPath": "/dst", "readOnly": True},
            id="bind",
        ),
        pytest.param(
            VolumeMount(src="claim", dst_path="/dst"),
            {"persistentVolumeClaim": {"claimName": "claim"}},
            {"mountPath": "/dst"},
            id="volume",
        ),
        pytest.param(
            DeviceMount(src_path="/dev/foo", dst_path="/dev/bar"),
            {"hostPath": {"path": "/dev/foo"}},
            {"mountPath": "/dev/bar"},
            id="device",
        ),
        pytest.param(
            DeviceMount(src_path="/dev/foo", dst_path="/dev/bar", permissions="r"),
            {"hostPath": {"path": "/dev/foo"}},
            {"mountPath": "/dev/bar", "readOnly": True},
            id="device-to-read",
        ),
    ],
)
def test_mounts(mount: Any, volume: dict[str, Any], place: dict[str, Any]) -> None:
    found = template(role(mounts=[mount]))["spec"]
    assert found["volumes"][1:] == [{"name": "mount-0", **volume}]
    assert found["containers"][0]["volumeMounts"][1:] == [{"name": "mount-0", **place}]


def test_a_device_makes_the_container_privileged_and_nothing_else_does() -> None:
    device = DeviceMount(src_path="/dev/foo", dst_path="/dev/foo")
    assert container(role(mounts=[device]))["securityContext"] == {"privileged": True}
    assert container(role(mounts=[BindMount("/a", "/b")]))["securityContext"] == {}


def test_the_claims_of_a_role_are_its_volumes() -> None:
    assert claims(role(mounts=[BindMount("/a", "/b"), VolumeMount("x", "/x"), VolumeMount("y", "/y")])) == ["x", "y"]


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        pytest.param({"port_map": {"Port": 1}}, "role trainer: port 'Port' must have", id="port-name"),
        pytest.param({"port_map": {"p": 70000}}, "role trainer: port p is 70000", id="port"),
        pytest.param({"port_map": {"p": "80"}}, "role trainer: port p is '80'", id="port-as-text"),
        pytest.param({"mounts": ["/a:/b"]}, "role trainer: '/a:/b' is no mount", id="mount"),
        pytest.param({"mounts": [BindMount("/a", "b")]}, "role trainer: mount 'b' must be an absolute", id="relative"),
    ],
)
def test_what_no_pod_can_have_is_named(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(Refused) as error:
        template(role(**fields))
    assert str(error.value).startswith(told)


def test_the_account_and_the_priority_are_the_options() -> None:
    found = template(role(), Options(service_account="sa", priority_class="high"))["spec"]
    assert (found["serviceAccountName"], found["priorityClassName"]) == ("sa", "high")
    assert "serviceAccountName" not in template(role())["spec"]


def test_in_a_stacks_namespace_pods_run_on_worker_nodes_without_privileges() -> None:
    found = template(role(), facts=FACTS)["spec"]
    assert found["nodeSelector"] == {"tidewater.dev/node-role": "worker"}
    assert "tidewater.dev/worker" in {each["key"] for each in found["tolerations"]}
    assert found["serviceAccountName"] == "trainer"
    assert found["securityContext"]["runAsUser"] == 1000
    own = found["containers"][0]["securityContext"]
    assert own == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


@pytest.mark.parametrize("facts", [FACTS, None], ids=["namespace of a stack", "another namespace"])
def test_a_role_runs_on_the_pool_that_its_capability_names(facts: Facts | None) -> None:
    found = template(role(resource=Resource(1, 0, 1, capabilities={"tidewater.dev/pool": "big"})), facts=facts)["spec"]
    assert found["nodeSelector"] == {"tidewater.dev/pool": "big"}
    assert "tidewater.dev/worker" in {each["key"] for each in found["tolerations"]}


def test_the_user_of_a_stacks_namespace_has_a_home_and_a_name_unless_the_role_says_other_ones() -> None:
    found = container(role(env={"HOME": "/own"}), facts=FACTS)["env"]
    assert {"name": "HOME", "value": "/own"} in found
    assert {"name": "USER", "value": "tidewater"} in found
    assert "HOME" not in {each["name"] for each in container(role())["env"]}


def test_the_account_of_the_option_comes_before_the_stacks() -> None:
    assert template(role(), Options(service_account="sa"), facts=FACTS)["spec"]["serviceAccountName"] == "sa"


def test_a_workspace_is_fetched_before_the_container_starts() -> None:
    code = shipped("s3://b/code/1.tar", fetch_image="aws", unpack_image="img:1", directory="/job")
    found = template(role(), pod=Pod(labels={}, rank0="r", code=code, working_directory="/job/workspace"))["spec"]
    assert [each["name"] for each in found["initContainers"]] == ["fetch-code", "unpack-code"]
    assert found["containers"][0]["workingDir"] == "/job/workspace"
    mounts = {each["name"] for each in found["containers"][0]["volumeMounts"]}
    assert mounts <= {each["name"] for each in found["volumes"]}


def test_the_components_of_torchx_make_pods() -> None:
    for each in (utils.echo(image="img"), utils.sh("ls", image="img"), utils.python("-c", "1", m="x", image="img")):
        assert container(each.roles[0])["image"] == "img"
