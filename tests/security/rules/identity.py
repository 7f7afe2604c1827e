"""Rules for IAM roles, their policies, and the policies of resources."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.security.changes import Statement, add, documents, edit, put, statements
from tests.security.rules.rule import Check, Finding, Rule, each, must
from tests.security.stack import Resource, Stack

ROLE = "aws:iam/role:Role"
OF_IDENTITIES = ("aws:iam/rolePolicy:RolePolicy", "aws:iam/policy:Policy")
OF_RESOURCES = (
    "aws:kms/key:Key",
    "aws:s3/bucketPolicy:BucketPolicy",
    "aws:efs/fileSystemPolicy:FileSystemPolicy",
    "aws:sqs/queuePolicy:QueuePolicy",
)
ATTACHMENT = "aws:iam/rolePolicyAttachment:RolePolicyAttachment"

WITHOUT_RESOURCES = ("ec2:Describe", "iam:ListInstanceProfiles", "pricing:GetProducts")
"""Actions that AWS allows for all resources or none.
https://docs.aws.amazon.com/service-authorization/latest/reference/reference.html"""

READS = ("Describe", "Get", "List")


def _list(value: object) -> list[str]:
    return [value] if isinstance(value, str) else list(value) if isinstance(value, Sequence) else []


def _of_documents(types: Sequence[str], wrong: Callable[[Statement], str | None], keys: str = "policy") -> Check:
    """Return a check of every statement that allows something in the documents of these types."""

    def check(stack: Stack) -> list[Finding]:
        return [
            Finding(resource.urn, what)
            for resource in stack.of(*types)
            for key, document in documents(resource)
            for statement in statements(document)
            if key == keys and statement["Effect"] == "Allow" and (what := wrong(statement))
        ]

    return check


def _is_read(action: str) -> bool:
    return action.partition(":")[2].startswith(READS)


def _star(statement: Statement) -> str | None:
    if "*" not in _list(statement.get("Resource")):
        return None
    could_name = [action for action in _list(statement["Action"]) if not action.startswith(WITHOUT_RESOURCES)]
    return must(not could_name, f"{', '.join(could_name)} for every resource")


def _writes_anything(statement: Statement) -> str | None:
    if "*" not in _list(statement.get("Resource")) or statement.get("Condition"):
        return None
    writes = [action for action in _list(statement["Action"]) if not _is_read(action)]
    return must(not writes, f"{', '.join(writes)} for every resource and without a condition")


def _principals(statement: Statement) -> list[str]:
    principal = statement.get("Principal")
    return _list(principal.get("AWS")) if isinstance(principal, dict) else _list(principal)


def _anybody(statement: Statement) -> str | None:
    return must("*" not in _principals(statement), "everybody may assume it")


def _whole_account(statement: Statement) -> str | None:
    roots = [each for each in _principals(statement) if each.endswith(":root") or each.isdecimal()]
    return must(not roots, "whoever the account allows may assume it")


def _administrator(attachment: Resource) -> str | None:
    policy = str(attachment.get("policyArn")).rpartition("/")[2]
    return must(not policy.startswith("Administrator") and not policy.endswith("FullAccess"), policy)


def _to_all(statement: Statement) -> None:
    # Karpenter's look-ups may keep their `*`: a change must be of an action that could name its resources.
    statement.update(Resource="*", Action="s3:PutObject")
    statement.pop("Condition", None)


def _trust(principal: object) -> Callable[[Statement], None]:
    return lambda statement: statement.update(Principal=principal)


_EVERY_TRUST = ([ROLE], "assumeRolePolicy")

RULES = (
    Rule(
        "CKV_AWS_355",
        "policies of roles name the resources",
        _of_documents(OF_IDENTITIES, _star),
        (edit(OF_IDENTITIES, "policy", _to_all),),
    ),
    Rule(
        "CKV_AWS_356",
        "policies of resources name the resources",
        _of_documents(OF_RESOURCES, _star),
        (edit(OF_RESOURCES, "policy", _to_all),),
    ),
    Rule(
        "CKV_AWS_290",
        "nothing is written without a constraint",
        _of_documents(OF_IDENTITIES, _writes_anything),
        (edit(OF_IDENTITIES, "policy", _to_all),),
    ),
    Rule(
        "CKV_AWS_274",
        "no role is an administrator",
        each(ATTACHMENT, _administrator),
        (
            put(ATTACHMENT, "policyArn", "arn:aws:iam::aws:policy/AdministratorAccess"),
            add(ATTACHMENT, policyArn="arn:aws:iam::aws:policy/AmazonS3FullAccess"),
        ),
    ),
    Rule(
        "CKV_AWS_60",
        "not everybody may assume a role",
        _of_documents([ROLE], _anybody, "assumeRolePolicy"),
        (edit(*_EVERY_TRUST, _trust({"AWS": "*"})), edit(*_EVERY_TRUST, _trust("*"))),
    ),
    Rule(
        "CKV_AWS_61",
        "no role is open to a whole account",
        _of_documents([ROLE], _whole_account, "assumeRolePolicy"),
        (edit(*_EVERY_TRUST, _trust({"AWS": "arn:aws:iam::123456789012:root"})),),
    ),
)
