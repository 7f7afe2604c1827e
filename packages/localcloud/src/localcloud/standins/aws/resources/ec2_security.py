"""EC2: security groups, and rules that allow traffic to them, each a resource."""

from __future__ import annotations

import zlib
from typing import Any, Final

from localcloud.standins.aws.entry import Call, Entry, Naming, Tree, ignore_absent, tag_map, words
from localcloud.standins.aws.resources.ec2_common import delete, first, tag_specification, update_tags
from localcloud.standins.serve import PluginError

_ABSENT: Final = "InvalidPermission.NotFound"
_ANY: Final = ("-1", "all")


def _group_create(call: Call) -> str:
    inputs = call.inputs
    arguments: Tree = {"TagSpecifications": tag_specification(call, "security-group")}
    if inputs.get("vpcId"):
        arguments["VpcId"] = inputs["vpcId"]
    name = inputs.get("name") or f"{inputs['namePrefix']}{zlib.crc32(str(sorted(inputs)).encode()):08x}"
    ec2 = call.client("ec2")
    call.id = ec2.create_security_group(GroupName=name, Description=inputs["description"], **arguments)["GroupId"]
    # AWS adds a rule that allows all egress; Terraform, and so Pulumi, removes it.
    everything = {"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}
    ignore_absent(lambda: ec2.revoke_security_group_egress(GroupId=call.id, IpPermissions=[everything]), _ABSENT)
    return call.id


def _protocol(text: Any) -> str:
    return "-1" if str(text).lower() in _ANY else str(text).lower()


def _revoke(call: Call, direction: str, permissions: list[Tree]) -> None:
    act = getattr(call.client("ec2"), f"revoke_security_group_{direction}")
    for item in permissions:
        arguments = {"GroupId": call.id, "IpPermissions": [item]}
        ignore_absent(lambda arguments=arguments: act(**arguments), _ABSENT)  # type: ignore[misc]


def _group_read(call: Call) -> Tree | None:
    codes = ("InvalidGroup.NotFound", "InvalidGroupId.Malformed")
    group = first(call, "describe_security_groups", "SecurityGroups", *codes, GroupIds=[call.id])
    if group is None:
        return None
    found = {
        "arn": call.arn("ec2", f"security-group/{call.id}"),
        "name": group["GroupName"],
        "description": group["Description"],
        "vpcId": group.get("VpcId"),
        "ownerId": group["OwnerId"],
        "tags": tag_map(group.get("Tags")),
    }
    # A group that declares to have no rules shows those of others: they are drift.
    for direction, key in (("ingress", "IpPermissions"), ("egress", "IpPermissionsEgress")):
        if call.inputs.get(direction) is not None:
            found[direction] = [rule for item in group[key] for rule in inline_rules(item, call.id)]
    return found


def inline_rules(item: Tree, group: str) -> list[Tree]:
    """Return EC2's permission as inline rules, one for each description."""
    by_note: dict[str, Tree] = {}

    def rule(note: str) -> Tree:
        ports = {"fromPort": item.get("FromPort") or 0, "toPort": item.get("ToPort") or 0}
        blank = {"protocol": item["IpProtocol"], **ports, "description": note}
        return by_note.setdefault(note, blank)

    for source, name, field in (
        ("IpRanges", "cidrBlocks", "CidrIp"),
        ("Ipv6Ranges", "ipv6CidrBlocks", "CidrIpv6"),
        ("PrefixListIds", "prefixListIds", "PrefixListId"),
    ):
        for entry in item.get(source) or []:
            rule(entry.get("Description") or "").setdefault(name, []).append(entry[field])
    for pair in item.get("UserIdGroupPairs") or []:
        target = rule(pair.get("Description") or "")
        if pair["GroupId"] == group:
            target["self"] = True
        else:
            target.setdefault("securityGroups", []).append(pair["GroupId"])
    return list(by_note.values())


def _group_delete(call: Call) -> None:
    if call.inputs.get("revokeRulesOnDelete"):
        _revoke_all(call)
    delete(call, lambda: call.client("ec2").delete_security_group(GroupId=call.id), f"security group {call.id}")


def _revoke_all(call: Call) -> None:
    group = first(call, "describe_security_groups", "SecurityGroups", GroupIds=[call.id]) or {}
    _revoke(call, "ingress", group.get("IpPermissions") or [])
    _revoke(call, "egress", group.get("IpPermissionsEgress") or [])


def _default_group_create(call: Call) -> str:
    """Adopt the VPC's default group and remove its rules."""
    filters = [{"Name": "group-name", "Values": ["default"]}]
    if call.inputs.get("vpcId"):
        filters.append({"Name": "vpc-id", "Values": [call.inputs["vpcId"]]})
    group = first(call, "describe_security_groups", "SecurityGroups", Filters=filters)
    if group is None:
        raise PluginError(f"VPC {call.inputs.get('vpcId')} has no default security group")
    call.id = group["GroupId"]
    _revoke_all(call)
    call.olds = {"tags": tag_map(group.get("Tags"))}
    update_tags(call)
    return call.id


def _default_group_update(call: Call) -> None:
    if call.changed & {"ingress", "egress"}:
        _revoke_all(call)
    update_tags(call)


def _keep(call: Call) -> None:
    """Do nothing: the default group can't be deleted, and the official plug-in only removes it from the state, too."""


_SOURCES: Final = {
    "cidrIpv4": ("IpRanges", "CidrIp", "CidrIpv4"),
    "cidrIpv6": ("Ipv6Ranges", "CidrIpv6", "CidrIpv6"),
    "prefixListId": ("PrefixListIds", "PrefixListId", "PrefixListId"),
    "referencedSecurityGroupId": ("UserIdGroupPairs", "GroupId", ""),
}


def _permission(inputs: Tree) -> Tree:
    item: Tree = {"IpProtocol": _protocol(inputs["ipProtocol"])}
    item |= {key: int(inputs[name]) for name, key in (("fromPort", "FromPort"), ("toPort", "ToPort")) if name in inputs}
    note = {"Description": inputs["description"]} if inputs.get("description") else {}
    for name, (key, field, _) in _SOURCES.items():
        if inputs.get(name):
            item[key] = [{field: inputs[name], **note}]
    return item


def _rule_create(call: Call) -> str:
    if not any(call.inputs.get(name) for name in _SOURCES):
        raise PluginError(f"a security group rule needs one of {', '.join(_SOURCES)}")
    act = call.client("ec2").authorize_security_group_ingress
    answer = act(
        GroupId=call.inputs["securityGroupId"],
        IpPermissions=[_permission(call.inputs)],
        TagSpecifications=tag_specification(call, "security-group-rule"),
    )
    return str(answer["SecurityGroupRules"][0]["SecurityGroupRuleId"])


def _rule_find(call: Call) -> Tree | None:
    codes = ("InvalidSecurityGroupRuleId.NotFound", "InvalidSecurityGroupRuleId.Malformed", "InvalidGroup.NotFound")
    rule: Tree | None = first(
        call, "describe_security_group_rules", "SecurityGroupRules", *codes, SecurityGroupRuleIds=[call.id]
    )
    return rule


def _rule_read(call: Call) -> Tree | None:
    rule = _rule_find(call)
    if rule is None:
        return None
    found = {
        "arn": call.arn("ec2", f"security-group-rule/{call.id}"),
        "securityGroupId": rule["GroupId"],
        "securityGroupRuleId": call.id,
        "ipProtocol": rule["IpProtocol"],
        "description": rule.get("Description") or "",
        "referencedSecurityGroupId": (rule.get("ReferencedGroupInfo") or {}).get("GroupId"),
        "tags": tag_map(rule.get("Tags")),
    }
    found |= {name: rule.get(field) for name, (_, _, field) in _SOURCES.items() if field}
    if rule["IpProtocol"] != "-1":
        found |= {"fromPort": rule.get("FromPort"), "toPort": rule.get("ToPort")}
    return found


def _rule_update(call: Call) -> None:
    if call.changed - {"tags"}:
        inputs = call.inputs
        rule = {"IpProtocol": _protocol(inputs["ipProtocol"]), "Description": inputs.get("description") or ""}
        ports = (("fromPort", "FromPort"), ("toPort", "ToPort"))
        rule |= {key: int(inputs[name]) for name, key in ports if name in inputs}
        if rule["IpProtocol"] == "-1":
            rule |= {"FromPort": -1, "ToPort": -1}
        targets = {"cidrIpv4": "CidrIpv4", "cidrIpv6": "CidrIpv6", "prefixListId": "PrefixListId"}
        targets |= {"referencedSecurityGroupId": "ReferencedGroupId"}
        rule |= {key: inputs[name] for name, key in targets.items() if inputs.get(name)}
        call.client("ec2").modify_security_group_rules(
            GroupId=inputs["securityGroupId"],
            SecurityGroupRules=[{"SecurityGroupRuleId": call.id, "SecurityGroupRule": rule}],
        )
    update_tags(call)


def _rule_remove(call: Call) -> None:
    act = call.client("ec2").revoke_security_group_ingress
    group = call.inputs["securityGroupId"]
    codes = (_ABSENT, "InvalidSecurityGroupRuleId.NotFound", "InvalidGroup.NotFound")
    ignore_absent(lambda: act(GroupId=group, SecurityGroupRuleIds=[call.id]), *codes)


ENTRIES: Final = [
    Entry(
        token="aws:ec2/securityGroup:SecurityGroup",
        covers=words("name namePrefix description vpcId revokeRulesOnDelete"),
        replace_on=words("name namePrefix description vpcId"),
        computed=words("vpcId"),
        defaults={"description": "Managed by Pulumi", "revokeRulesOnDelete": False},
        naming=Naming(),
        one_of=(words("name namePrefix"),),
        create=_group_create,
        read=_group_read,
        update=update_tags,
        delete=_group_delete,
    ),
    Entry(
        token="aws:ec2/defaultSecurityGroup:DefaultSecurityGroup",
        covers=words("vpcId ingress egress revokeRulesOnDelete"),
        computed=words("vpcId"),
        replace_on=words("vpcId"),
        only={"ingress": [], "egress": []},
        create=_default_group_create,
        read=_group_read,
        update=_default_group_update,
        delete=_keep,
    ),
    Entry(
        token="aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule",
        covers=frozenset({"securityGroupId", "ipProtocol", "fromPort", "toPort", "description", *_SOURCES}),
        replace_on=words("securityGroupId"),
        one_of=(frozenset(_SOURCES),),
        create=_rule_create,
        read=_rule_read,
        update=_rule_update,
        delete=_rule_remove,
    ),
]
