"""The manifests of the controller: complete, confined, and with no more rights than it needs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tidewater.elasticjob import install, names
from tidewater.elasticjob.install import access, pods

PROGRAM = install.Program({"__main__.py": b"", "tidewater/controller/requirements.txt": b"x==1\n"})
WANTED = install.Installation(program=PROGRAM)


def kinds() -> list[str]:
    return [each["kind"] for each in install.manifests(WANTED)]


def one(kind: str) -> dict[str, Any]:
    (found,) = [each for each in install.manifests(WANTED) if each["kind"] == kind]
    return found


def named(kind: str, name: str) -> dict[str, Any]:
    (found,) = [each for each in install.manifests(WANTED) if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return found


def users_may(role: str) -> set[str]:
    """Return what Kubernetes' own role with this name gets."""
    found = [
        each
        for each in install.manifests(WANTED)
        if f"{access.RBAC}/aggregate-to-{role}" in each["metadata"].get("labels", {})
    ]
    rules = [rule for each in found for rule in each["rules"]]
    assert all(rule["apiGroups"] == [names.GROUP] for rule in rules)
    return {f"{verb} {resource}" for rule in rules for verb in rule["verbs"] for resource in rule["resources"]}


def test_users_who_may_view_or_edit_a_namespace_may_do_so_with_its_jobs() -> None:
    """Kubernetes adds view to edit, and edit to admin."""
    assert users_may("view") == {
        f"{verb} {resource}"
        for verb in ("get", "list", "watch")
        for resource in ("elasticjobs", "elasticjobs/status", "elasticjobs/scale")
    }
    changes = {f"{verb} elasticjobs" for verb in ("create", "update", "patch", "delete", "deletecollection")}
    assert users_may("edit") == {*changes, "update elasticjobs/scale", "patch elasticjobs/scale"}


def allowed(verb: str, resource: str) -> bool:
    return any(verb in rule["verbs"] and resource in rule["resources"] for rule in access.CLUSTER_RULES)


def test_what_others_need_comes_first() -> None:
    assert kinds()[:3] == ["CustomResourceDefinition", "Namespace", "ServiceAccount"]
    assert kinds()[-1] == "Deployment"


def test_all_objects_of_the_namespace_are_in_it() -> None:
    everywhere = {"CustomResourceDefinition", "Namespace", "ClusterRole", "ClusterRoleBinding"}
    for each in install.manifests(install.Installation(program=PROGRAM, namespace="elsewhere")):
        namespace = each["metadata"].get("namespace")
        assert (namespace is None) if each["kind"] in everywhere else (namespace == "elsewhere"), each["kind"]


def test_two_replicas_prefer_different_nodes_and_a_drain_takes_one_at_a_time() -> None:
    spec = one("Deployment")["spec"]
    assert spec["replicas"] == 2
    (first, _) = spec["template"]["spec"]["affinity"]["podAntiAffinity"][
        "preferredDuringSchedulingIgnoredDuringExecution"
    ]
    assert first["podAffinityTerm"]["topologyKey"] == "kubernetes.io/hostname"
    assert one("PodDisruptionBudget")["spec"]["maxUnavailable"] == 1
    labels = spec["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"] == one("PodDisruptionBudget")["spec"]["selector"]["matchLabels"] == labels


def test_its_pods_pass_the_restricted_standard() -> None:
    assert one("Namespace")["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    spec = one("Deployment")["spec"]["template"]["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in spec["containers"] + spec["initContainers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"]["requests"]
        assert container["resources"]["limits"]["memory"]


def test_containers_mount_only_volumes_that_the_pod_has() -> None:
    spec = one("Deployment")["spec"]["template"]["spec"]
    volumes = {volume["name"] for volume in spec["volumes"]}
    for container in spec["containers"] + spec["initContainers"]:
        assert {mount["name"] for mount in container["volumeMounts"]} <= volumes


def test_the_roles_are_bound_to_the_account_of_the_pods() -> None:
    account = one("Deployment")["spec"]["template"]["spec"]["serviceAccountName"]
    assert account == one("ServiceAccount")["metadata"]["name"]
    for kind in ("ClusterRole", "Role"):
        binding, role = one(f"{kind}Binding"), named(kind, WANTED.name)
        assert binding["roleRef"]["kind"] == kind
        assert binding["roleRef"]["name"] == role["metadata"]["name"]
        (subject,) = binding["subjects"]
        assert subject == {"kind": "ServiceAccount", "name": account, "namespace": WANTED.namespace}


def test_only_the_pods_mount_the_accounts_token() -> None:
    assert one("ServiceAccount")["automountServiceAccountToken"] is False
    assert one("Deployment")["spec"]["template"]["spec"]["automountServiceAccountToken"] is True


@pytest.mark.parametrize(
    ("verb", "resource"),
    [
        pytest.param("watch", names.PLURAL, id="sees-jobs"),
        pytest.param("patch", f"{names.PLURAL}/status", id="writes-their-status"),
        pytest.param("create", "pods", id="makes-pods"),
        pytest.param("delete", "pods", id="deletes-pods"),
        pytest.param("create", "services", id="makes-the-service"),
        pytest.param("watch", "nodes", id="sees-doomed-nodes"),
        pytest.param("watch", "priorityclasses", id="sees-which-pods-displace-others"),
        pytest.param("create", "events", id="writes-events"),
        pytest.param("watch", "events", id="hears-why-no-node-comes"),
        pytest.param("watch", "nodeclaims", id="hears-why-the-cloud-gives-no-instance"),
        pytest.param("watch", "nodepools", id="hears-why-none-can-be-asked-for"),
        pytest.param("watch", "ec2nodeclasses", id="hears-which-subnet-or-image-is-missing"),
    ],
)
def test_it_may_do_its_work(verb: str, resource: str) -> None:
    assert allowed(verb, resource)


def test_it_may_do_nothing_else() -> None:
    for rule in (*access.CLUSTER_RULES, *access.OWN_RULES):
        assert "*" not in rule["verbs"] + rule["resources"] + rule["apiGroups"]
    for verb in ("create", "update", "patch"):
        assert not allowed(verb, names.PLURAL)
        assert not allowed(verb, "nodes")
    for verb in ("get", "list", "delete"):
        assert not allowed(verb, "events")
    for verb in ("get", "list", "create", "update", "patch", "delete"):
        assert not any(allowed(verb, kind) for kind in ("nodeclaims", "nodepools", "ec2nodeclasses"))
    for resource in ("secrets", "configmaps", "pods/exec", "leases"):
        assert not any(allowed(verb, resource) for verb in ("get", "list", "watch", "create", "update"))


def rights(wanted: install.Installation, kind: str) -> set[str]:
    """Return what the controller may do by its roles of a kind: `verb resource`, and in which namespace."""
    return {
        f"{verb} {resource} {role['metadata'].get('namespace', '')}".strip()
        for role in access.manifests(wanted)
        if role["kind"] == kind and role["metadata"]["name"].startswith(wanted.name)
        for rule in role["rules"]
        for verb in rule["verbs"]
        for resource in rule["resources"]
    }


def test_with_namespaces_it_has_its_rights_on_jobs_and_pods_in_these_only() -> None:
    everywhere = rights(WANTED, "ClusterRole")
    limited = install.Installation(program=PROGRAM, namespaces=("vision", "speech"))
    (args,) = [each["args"] for each in pods.pod_spec(limited)["containers"]]
    assert args == ["--namespaces=vision,speech"]
    in_cluster, in_spaces = rights(limited, "ClusterRole"), rights(limited, "Role")
    assert {each.split()[1] for each in in_cluster} == {
        *("nodes", "priorityclasses", "nodeclaims", "nodepools", "ec2nodeclasses")
    }
    for space in ("vision", "speech"):
        assert {f"{each} {space}" for each in everywhere - in_cluster} <= in_spaces
    assert {each.split()[2] for each in in_spaces} == {"vision", "speech", WANTED.namespace}


def test_with_fixed_nodes_it_sees_all_pods_and_changes_those_of_its_namespaces_only() -> None:
    limited = install.Installation(program=PROGRAM, namespaces=("vision",), fixed_nodes=True)
    of_pods = {each for each in rights(limited, "ClusterRole") if each.endswith(" pods")}
    assert of_pods == {"list pods", "watch pods"}


def test_the_role_for_the_lease_stays_where_jobs_are_in_the_controllers_namespace() -> None:
    roles = access.manifests(install.Installation(program=PROGRAM, namespaces=(WANTED.namespace,)))
    named = [(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in roles]
    assert len(set(named)) == len(named)


def test_the_probes_and_the_metrics_have_one_port() -> None:
    template = one("Deployment")["spec"]["template"]
    (container,) = template["spec"]["containers"]
    (port,) = container["ports"]
    for name in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[name]["httpGet"]["port"] == port["name"]
    assert template["metadata"]["annotations"]["prometheus.io/port"] == str(port["containerPort"])


def test_a_changed_program_gets_another_config_map_and_replaces_the_pods() -> None:
    changed = install.Installation(program=install.Program({**PROGRAM.files, "controller/new.py": b"x = 1\n"}))
    assert changed.program_map != WANTED.program_map
    (volume,) = [
        each for each in install.deployment(changed)["spec"]["template"]["spec"]["volumes"] if each["name"] == "program"
    ]
    assert volume["configMap"]["name"] == pods.program_map(changed)["metadata"]["name"] == changed.program_map


def test_settings_of_the_pods_are_left_out_where_they_have_no_value() -> None:
    assert {"nodeSelector", "priorityClassName"} & pods.pod_spec(WANTED).keys() == set()
    chosen = install.Installation(program=PROGRAM, node_selector={"a": "b"}, priority_class="high")
    assert pods.pod_spec(chosen)["nodeSelector"] == {"a": "b"}
    assert pods.pod_spec(chosen)["priorityClassName"] == "high"


@pytest.mark.parametrize(
    ("wanted", "flags"),
    [
        (install.Installation(program=PROGRAM, fixed_nodes=True), ["--fixed-nodes"]),
        (install.Installation(program=PROGRAM, taint_bad_nodes=True), ["--taint-bad-nodes"]),
    ],
)
def test_choices_are_flags_of_the_controller(wanted: install.Installation, flags: list[str]) -> None:
    assert "args" not in pods.container(WANTED)
    assert pods.container(wanted)["args"] == flags


def test_it_may_change_nodes_only_if_it_is_to_taint_them() -> None:
    def rules(wanted: install.Installation) -> list[dict[str, Any]]:
        return next(each["rules"] for each in install.manifests(wanted) if each["kind"] == "ClusterRole")

    tainting = install.Installation(program=PROGRAM, taint_bad_nodes=True)
    more = [rule for rule in rules(tainting) if rule not in rules(WANTED)]
    assert more == [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["patch"]}]


def test_it_is_json_and_the_same_every_time() -> None:
    assert json.dumps(install.manifests(WANTED)) == json.dumps(install.manifests(WANTED))
