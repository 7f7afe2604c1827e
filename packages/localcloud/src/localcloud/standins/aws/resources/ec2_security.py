"""EC2: security groups and their rules, in all three forms of pulumi-aws."""

from __future__ import annotations

import zlib
from typing import Any, Final

from localcloud.standins.aws.entry import Call, Entry, Naming, Tree, ignore_absent, retry, tag_map, words
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
    for direction in ("ingress", "egress"):
        _authorize(call, direction, [permission(rule, call.id) for rule in inputs.get(direction) or []])
    return call.id


def permission(rule: Tree, group: str) -> Tree:
    """Return an inline rule in EC2's form."""
    result: Tree = {"IpProtocol": _protocol(rule["protocol"])}
    if result["IpProtocol"] not in _ANY:
        result |= {"FromPort": int(rule["fromPort"]), "ToPort": int(rule["toPort"])}
    note = {"Description": rule["description"]} if rule.get("description") else {}
    groups = [*(rule.get("securityGroups") or []), *([group] if rule.get("self") else [])]
    if rule.get("cidrBlocks"):
        result["IpRanges"] = [{"CidrIp": cidr, **note} for cidr in rule["cidrBlocks"]]
    if rule.get("ipv6CidrBlocks"):
        result["Ipv6Ranges"] = [{"CidrIpv6": cidr, **note} for cidr in rule["ipv6CidrBlocks"]]
    if rule.get("prefixListIds"):
        result["PrefixListIds"] = [{"PrefixListId": item, **note} for item in rule["prefixListIds"]]
    if groups:
        result["UserIdGroupPairs"] = [{"GroupId": item, **note} for item in groups]
    return result


def _protocol(text: Any) -> str:
    return "-1" if str(text).lower() in _ANY else str(text).lower()


def _authorize(call: Call, direction: str, permissions: list[Tree], group: str = "") -> None:
    if permissions:
        act = getattr(call.client("ec2"), f"authorize_security_group_{direction}")
        retry(
            call, lambda: act(GroupId=group or call.id, IpPermissions=permissions), "InvalidGroup.NotFound", seconds=20
        )


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
    # Rules belong to this resource if it declares some, else to rule resources. An import reads all of them.
    for direction, key in (("ingress", "IpPermissions"), ("egress", "IpPermissionsEgress")):
        if call.inputs.get(direction) is not None or not call.inputs:
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


def _group_update(call: Call) -> None:
    for direction in ("ingress", "egress"):
        if direction in call.changed:
            old = [permission(rule, call.id) for rule in call.olds.get(direction) or []]
            new = [permission(rule, call.id) for rule in call.inputs.get(direction) or []]
            _revoke(call, direction, [item for item in old if item not in new])
            _authorize(call, direction, [item for item in new if item not in old])
    update_tags(call)


def _group_delete(call: Call) -> None:
    if call.inputs.get("revokeRulesOnDelete"):
        _revoke_all(call)
    delete(call, lambda: call.client("ec2").delete_security_group(GroupId=call.id), f"security group {call.id}")


def _revoke_all(call: Call) -> None:
    group = first(call, "describe_security_groups", "SecurityGroups", GroupIds=[call.id]) or {}
    _revoke(call, "ingress", group.get("IpPermissions") or [])
    _revoke(call, "egress", group.get("IpPermissionsEgress") or [])


def _default_group_create(call: Call) -> str:
    """Adopt the VPC's default group, remove its rules, and add the declared ones."""
    filters = [{"Name": "group-name", "Values": ["default"]}]
    if call.inputs.get("vpcId"):
        filters.append({"Name": "vpc-id", "Values": [call.inputs["vpcId"]]})
    group = first(call, "describe_security_groups", "SecurityGroups", Filters=filters)
    if group is None:
        raise PluginError(f"VPC {call.inputs.get('vpcId')} has no default security group")
    call.id = group["GroupId"]
    _revoke_all(call)
    for direction in ("ingress", "egress"):
        _authorize(call, direction, [permission(rule, call.id) for rule in call.inputs.get(direction) or []])
    call.olds = {"tags": tag_map(group.get("Tags"))}
    update_tags(call)
    return call.id


def _keep(call: Call) -> None:
    """Do nothing: the default group can't be deleted, and the official plug-in only removes it from the state, too."""


_KINDS: Final = ("ingress", "egress")


def _rule_permission(inputs: Tree) -> Tree:
    source = [inputs["sourceSecurityGroupId"]] if inputs.get("sourceSecurityGroupId") else []
    return permission({**inputs, "securityGroups": source}, inputs["securityGroupId"])


def _rule_create(call: Call) -> str:
    inputs = call.inputs
    if inputs["type"] not in _KINDS:
        raise PluginError(f"type of a security group rule is ingress or egress, not {inputs['type']!r}")
    item = _rule_permission(inputs)
    if not set(item) & {"IpRanges", "Ipv6Ranges", "PrefixListIds", "UserIdGroupPairs"}:
        names = "cidrBlocks, ipv6CidrBlocks, prefixListIds, sourceSecurityGroupId or self"
        raise PluginError(f"a security group rule needs one of {names}")
    _authorize(call, inputs["type"], [item], inputs["securityGroupId"])
    return f"sgrule-{zlib.crc32(repr((inputs['securityGroupId'], inputs['type'], sorted(item.items()))).encode())}"


def _rule_read(call: Call) -> Tree | None:
    inputs = call.inputs or call.state
    if not inputs:
        raise PluginError("import of aws:ec2/securityGroupRule is not covered by the stand-in for pulumi-aws")
    group = first(
        call,
        "describe_security_groups",
        "SecurityGroups",
        "InvalidGroup.NotFound",
        GroupIds=[inputs["securityGroupId"]],
    )
    key = "IpPermissions" if inputs["type"] == "ingress" else "IpPermissionsEgress"
    wanted = _members(_rule_permission(inputs))
    present = {member for item in (group or {}).get(key, []) for member in _members(item)}
    if not wanted or not wanted <= present:
        return None
    own = [rule for item in group[key] if _members(item) & wanted for rule in inline_rules(item, "")]
    notes = sorted({rule["description"] for rule in own})
    rules = {"description": inputs.get("description") if inputs.get("description") in notes else notes[0]}
    return {"type": inputs["type"], "securityGroupId": inputs["securityGroupId"], "securityGroupRuleId": "", **rules}


def _members(item: Tree) -> set[tuple[Any, ...]]:
    """Return each source or target of a permission, with its protocol and ports."""
    head = (_protocol(item["IpProtocol"]), item.get("FromPort"), item.get("ToPort"))
    if head[0] == "-1":
        head = ("-1", None, None)
    lists = (
        ("IpRanges", "CidrIp"),
        ("Ipv6Ranges", "CidrIpv6"),
        ("PrefixListIds", "PrefixListId"),
        ("UserIdGroupPairs", "GroupId"),
    )
    return {(*head, entry[field]) for name, field in lists for entry in item.get(name) or []}


def _rule_update(call: Call) -> None:
    """Update the description, which alone changes in place."""
    inputs = call.inputs
    act = getattr(call.client("ec2"), f"update_security_group_rule_descriptions_{inputs['type']}")
    act(GroupId=inputs["securityGroupId"], IpPermissions=[_rule_permission(inputs)])


def _rule_delete(call: Call) -> None:
    inputs = call.inputs
    group = inputs["securityGroupId"]
    act = getattr(call.client("ec2"), f"revoke_security_group_{inputs['type']}")
    item = _rule_permission(inputs)
    ignore_absent(lambda: act(GroupId=group, IpPermissions=[item]), _ABSENT, "InvalidGroup.NotFound")


_SINGLE: Final = {
    "cidrIpv4": ("IpRanges", "CidrIp", "CidrIpv4"),
    "cidrIpv6": ("Ipv6Ranges", "CidrIpv6", "CidrIpv6"),
    "prefixListId": ("PrefixListIds", "PrefixListId", "PrefixListId"),
    "referencedSecurityGroupId": ("UserIdGroupPairs", "GroupId", ""),
}


def _single_permission(inputs: Tree) -> Tree:
    item: Tree = {"IpProtocol": _protocol(inputs["ipProtocol"])}
    item |= {key: int(inputs[name]) for name, key in (("fromPort", "FromPort"), ("toPort", "ToPort")) if name in inputs}
    note = {"Description": inputs["description"]} if inputs.get("description") else {}
    for name, (key, field, _) in _SINGLE.items():
        if inputs.get(name):
            item[key] = [{field: inputs[name], **note}]
    return item


def _single(direction: str) -> Entry:
    """Return the entry of `aws:vpc:SecurityGroupIngressRule` or `…EgressRule`: one source, its own id, tags."""

    def create(call: Call) -> str:
        if not any(call.inputs.get(name) for name in _SINGLE):
            raise PluginError(f"a security group rule needs one of {', '.join(_SINGLE)}")
        act = getattr(call.client("ec2"), f"authorize_security_group_{direction}")
        answer = act(
            GroupId=call.inputs["securityGroupId"],
            IpPermissions=[_single_permission(call.inputs)],
            TagSpecifications=tag_specification(call, "security-group-rule"),
        )
        return str(answer["SecurityGroupRules"][0]["SecurityGroupRuleId"])

    def find(call: Call) -> Tree | None:
        codes = ("InvalidSecurityGroupRuleId.NotFound", "InvalidSecurityGroupRuleId.Malformed", "InvalidGroup.NotFound")
        rule: Tree | None = first(
            call, "describe_security_group_rules", "SecurityGroupRules", *codes, SecurityGroupRuleIds=[call.id]
        )
        return rule

    def read(call: Call) -> Tree | None:
        rule = find(call)
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
        found |= {name: rule.get(field) for name, (_, _, field) in _SINGLE.items() if field}
        if rule["IpProtocol"] != "-1":
            found |= {"fromPort": rule.get("FromPort"), "toPort": rule.get("ToPort")}
        return found

    def update(call: Call) -> None:
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

    def remove(call: Call) -> None:
        act = getattr(call.client("ec2"), f"revoke_security_group_{direction}")
        group = call.inputs["securityGroupId"]
        codes = (_ABSENT, "InvalidSecurityGroupRuleId.NotFound", "InvalidGroup.NotFound")
        ignore_absent(lambda: act(GroupId=group, SecurityGroupRuleIds=[call.id]), *codes)

    name = f"securityGroup{direction.title()}Rule"
    return Entry(
        token=f"aws:vpc/{name}:{name[0].upper()}{name[1:]}",
        covers=frozenset({"securityGroupId", "ipProtocol", "fromPort", "toPort", "description", *_SINGLE}),
        replace_on=words("securityGroupId"),
        one_of=(frozenset(_SINGLE),),
        create=create,
        read=read,
        update=update,
        delete=remove,
    )


ENTRIES: Final = [
    Entry(
        token="aws:ec2/securityGroup:SecurityGroup",
        covers=words("name namePrefix description vpcId ingress egress revokeRulesOnDelete"),
        replace_on=words("name namePrefix description vpcId"),
        computed=words("vpcId ingress egress"),
        defaults={"description": "Managed by Pulumi", "revokeRulesOnDelete": False},
        naming=Naming(),
        one_of=(words("name namePrefix"),),
        create=_group_create,
        read=_group_read,
        update=_group_update,
        delete=_group_delete,
    ),
    Entry(
        token="aws:ec2/defaultSecurityGroup:DefaultSecurityGroup",
        covers=words("vpcId ingress egress revokeRulesOnDelete"),
        computed=words("vpcId"),
        replace_on=words("vpcId"),
        create=_default_group_create,
        read=_group_read,
        update=_group_update,
        delete=_keep,
    ),
    Entry(
        token="aws:ec2/securityGroupRule:SecurityGroupRule",
        covers=words(
            "type securityGroupId protocol fromPort toPort cidrBlocks ipv6CidrBlocks prefixListIds"
            " sourceSecurityGroupId self description"
        ),
        replace_on=words(
            "type securityGroupId protocol fromPort toPort cidrBlocks ipv6CidrBlocks prefixListIds"
            " sourceSecurityGroupId self"
        ),
        tags=False,
        create=_rule_create,
        read=_rule_read,
        update=_rule_update,
        delete=_rule_delete,
    ),
    _single("ingress"),
    _single("egress"),
]
