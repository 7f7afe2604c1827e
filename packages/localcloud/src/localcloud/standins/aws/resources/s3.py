"""S3: buckets and what is configured on them."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from typing import Any, Final

from localcloud.standins.aws.entry import (
    Call,
    Entry,
    Naming,
    Tree,
    absent_as_none,
    error_code,
    ignore_absent,
    retry,
    tag_map,
    words,
)

_BUSY: Final = ("OperationAborted", "NoSuchBucket")
"""S3's errors for a while after a bucket was created or while another change of it is in progress."""

# The zone ids of S3's endpoints, https://docs.aws.amazon.com/general/latest/gr/s3.html
_ZONES: Final = {
    "us-east-1": "Z3AQBSTGFYJSTF",
    "us-east-2": "Z2O1EMRO9K5GLX",
    "us-west-1": "Z2F56UZL2M1ACD",
    "us-west-2": "Z3BJ6K6RIION7M",
    "eu-west-1": "Z1BKCTXD74EZPE",
    "eu-central-1": "Z21DNDUVLTQW6Q",
}


def _bucket_create(call: Call) -> str:
    inputs = call.inputs
    name = inputs.get("bucket") or f"{inputs['bucketPrefix']}{secrets.token_hex(13)}"
    arguments: Tree = {}
    if call.region != "us-east-1":
        arguments["CreateBucketConfiguration"] = {"LocationConstraint": call.region}
    if inputs.get("objectLockEnabled"):
        arguments["ObjectLockEnabledForBucket"] = True
    s3 = call.client("s3")
    retry(call, lambda: s3.create_bucket(Bucket=name, **arguments), "OperationAborted")
    if call.tags:
        call.id = name
        _put_tags(call)
    return str(name)


def _put_tags(call: Call) -> None:
    s3 = call.client("s3")
    if call.tags:
        act = lambda: s3.put_bucket_tagging(Bucket=call.id, Tagging={"TagSet": call.tag_list()})  # noqa: E731
        retry(call, act, *_BUSY)
    else:
        s3.delete_bucket_tagging(Bucket=call.id)


def _bucket_read(call: Call) -> Tree | None:
    s3, name = call.client("s3"), call.id
    if absent_as_none(lambda: s3.head_bucket(Bucket=name)) is None:
        return None
    region = s3.get_bucket_location(Bucket=name).get("LocationConstraint") or "us-east-1"
    tags = absent_as_none(lambda: s3.get_bucket_tagging(Bucket=name)) or {}
    return {
        "arn": f"arn:aws:s3:::{name}",
        "bucket": name,
        "bucketRegion": region,
        "bucketDomainName": f"{name}.s3.amazonaws.com",
        "bucketRegionalDomainName": f"{name}.s3.{region}.amazonaws.com",
        "hostedZoneId": _ZONES.get(region, ""),
        "objectLockEnabled": _locked(s3, name),
        "tags": tag_map(tags.get("TagSet")),
    }


def _locked(s3: Any, name: str) -> bool:
    answer = absent_as_none(
        lambda: s3.get_object_lock_configuration(Bucket=name), "ObjectLockConfigurationNotFoundError"
    )
    return bool(answer) and answer["ObjectLockConfiguration"].get("ObjectLockEnabled") == "Enabled"


def _bucket_update(call: Call) -> None:
    if "tags" in call.changed:
        _put_tags(call)


def _bucket_delete(call: Call) -> None:
    from botocore.exceptions import ClientError

    s3 = call.client("s3")
    try:
        s3.delete_bucket(Bucket=call.id)
    except ClientError as error:
        code = error_code(error)
        if code == "BucketNotEmpty" and call.inputs.get("forceDestroy"):
            _empty(call)
            s3.delete_bucket(Bucket=call.id)
        elif code == "BucketNotEmpty":
            raise type(error)(
                {"Error": {"Code": code, "Message": f"bucket {call.id} is not empty, and forceDestroy is not set"}},
                "DeleteBucket",
            ) from error
        elif code not in ("NoSuchBucket", "404"):
            raise


def _empty(call: Call) -> None:
    s3 = call.client("s3")
    for page in s3.get_paginator("list_object_versions").paginate(Bucket=call.id):
        entries = [*page.get("Versions", []), *page.get("DeleteMarkers", [])]
        objects = [{"Key": entry["Key"], "VersionId": entry["VersionId"]} for entry in entries]
        if objects:
            s3.delete_objects(Bucket=call.id, Delete={"Objects": objects, "Quiet": True})


def _setting(
    token: str,
    *,
    covers: str,
    put: Callable[[Any, Tree], Any],
    get: Callable[[Any, str], Tree],
    delete: Callable[[Any, Tree], Any],
    **fields: Any,
) -> Entry:
    """Return the entry of a bucket's setting: `put` creates and updates it, its id is the bucket's name.

    Args:
        token: the resource type.
        covers: its inputs in addition to `bucket`.
        put: sets it; gets the client and the inputs.
        get: returns its outputs except `bucket`, empty if there is none; gets the client and the bucket.
        delete: removes it; gets the client and the inputs.
        fields: further fields of `Entry`.
    """

    def create(call: Call) -> str:
        retry(call, lambda: put(call.client("s3"), call.inputs), *_BUSY, "MalformedPolicy", seconds=20)
        return str(call.inputs["bucket"])

    def update(call: Call) -> None:
        retry(call, lambda: put(call.client("s3"), call.inputs), "OperationAborted", "MalformedPolicy", seconds=20)

    def read(call: Call) -> Tree | None:
        codes = ("ServerSideEncryptionConfigurationNotFoundError", "OwnershipControlsNotFoundError")
        found = absent_as_none(lambda: get(call.client("s3"), call.id), *codes)
        return {"bucket": call.id, **found} if found else None

    def remove(call: Call) -> None:
        ignore_absent(lambda: retry(call, lambda: delete(call.client("s3"), call.inputs), "OperationAborted"))

    return Entry(
        token=token,
        covers=words(covers) | {"bucket"},
        replace_on=words("bucket"),
        tags=False,
        create=create,
        update=update,
        read=read,
        delete=remove,
        **fields,
    )


def _put_versioning(s3: Any, inputs: Tree) -> Any:
    setup = inputs["versioningConfiguration"]
    if setup["status"] == "Disabled":  # a new bucket has this status; S3 has no call to set it
        return None
    arguments = {"Status": setup["status"]}
    if setup.get("mfaDelete"):
        arguments["MFADelete"] = setup["mfaDelete"]
    return s3.put_bucket_versioning(Bucket=inputs["bucket"], VersioningConfiguration=arguments)


def _get_versioning(s3: Any, bucket: str) -> Tree:
    answer = s3.get_bucket_versioning(Bucket=bucket)
    mfa = {"mfaDelete": answer["MFADelete"]} if answer.get("MFADelete") else {}
    return {"versioningConfiguration": {"status": answer.get("Status") or "Disabled", **mfa}}


def _suspend_versioning(s3: Any, inputs: Tree) -> Any:
    if inputs["versioningConfiguration"]["status"] != "Enabled":
        return None
    return s3.put_bucket_versioning(Bucket=inputs["bucket"], VersioningConfiguration={"Status": "Suspended"})


def _put_encryption(s3: Any, inputs: Tree) -> Any:
    rules = []
    for rule in inputs["rules"]:
        default = rule.get("applyServerSideEncryptionByDefault") or {}
        algorithm = {"SSEAlgorithm": default.get("sseAlgorithm")}
        if default.get("kmsMasterKeyId"):
            algorithm["KMSMasterKeyID"] = default["kmsMasterKeyId"]
        item: Tree = {"ApplyServerSideEncryptionByDefault": algorithm} if default else {}
        if rule.get("bucketKeyEnabled") is not None:
            item["BucketKeyEnabled"] = rule["bucketKeyEnabled"]
        rules.append(item)
    return s3.put_bucket_encryption(Bucket=inputs["bucket"], ServerSideEncryptionConfiguration={"Rules": rules})


def _get_encryption(s3: Any, bucket: str) -> Tree:
    rules = s3.get_bucket_encryption(Bucket=bucket)["ServerSideEncryptionConfiguration"]["Rules"]
    found = []
    for rule in rules:
        default = rule.get("ApplyServerSideEncryptionByDefault") or {}
        shown = {"sseAlgorithm": default.get("SSEAlgorithm"), "kmsMasterKeyId": default.get("KMSMasterKeyID")}
        shown = {key: value for key, value in shown.items() if value}
        found.append(
            {"applyServerSideEncryptionByDefault": shown, "bucketKeyEnabled": bool(rule.get("BucketKeyEnabled"))}
        )
    return {"rules": found}


_BLOCKS: Final = {
    "blockPublicAcls": "BlockPublicAcls",
    "blockPublicPolicy": "BlockPublicPolicy",
    "ignorePublicAcls": "IgnorePublicAcls",
    "restrictPublicBuckets": "RestrictPublicBuckets",
}


def _put_block(s3: Any, inputs: Tree) -> Any:
    setup = {key: bool(inputs.get(name)) for name, key in _BLOCKS.items()}
    return s3.put_public_access_block(Bucket=inputs["bucket"], PublicAccessBlockConfiguration=setup)


def _get_block(s3: Any, bucket: str) -> Tree:
    setup = s3.get_public_access_block(Bucket=bucket)["PublicAccessBlockConfiguration"]
    return {name: bool(setup.get(key)) for name, key in _BLOCKS.items()}


def _put_ownership(s3: Any, inputs: Tree) -> Any:
    rules = [{"ObjectOwnership": inputs["rule"]["objectOwnership"]}]
    return s3.put_bucket_ownership_controls(Bucket=inputs["bucket"], OwnershipControls={"Rules": rules})


def _get_ownership(s3: Any, bucket: str) -> Tree:
    rules = s3.get_bucket_ownership_controls(Bucket=bucket)["OwnershipControls"]["Rules"]
    return {"rule": {"objectOwnership": rules[0]["ObjectOwnership"]}}


_UPPER: Final = {"id": "ID"}


def lifecycle_rule(rule: Tree) -> Tree:
    """Return a lifecycle rule in S3's form."""
    result = {_UPPER.get(key) or key[0].upper() + key[1:]: _lifecycle_value(value) for key, value in rule.items()}
    result["Filter"] = _lifecycle_filter(rule.get("filter") or {})
    if rule.get("prefix"):
        del result["Filter"]
    return {key: value for key, value in result.items() if value not in (None, [], "") or key == "Filter"}


def _lifecycle_value(value: Any) -> Any:
    if isinstance(value, dict):
        return {key[0].upper() + key[1:]: _lifecycle_value(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_lifecycle_value(item) for item in value]
    return value


def _lifecycle_filter(given: Tree) -> Tree:
    if given.get("and"):
        both = given["and"]
        tags = [{"Key": key, "Value": value} for key, value in (both.get("tags") or {}).items()]
        rest = {key: value for key, value in both.items() if key != "tags"}
        return {"And": {**_lifecycle_value(rest), "Tags": tags}}
    return dict(_lifecycle_value(given)) or {"Prefix": ""}


def lifecycle_inputs(rule: Tree) -> Tree:
    """Return S3's lifecycle rule as inputs."""
    found = {("id" if key == "ID" else key[0].lower() + key[1:]): _lifecycle_back(value) for key, value in rule.items()}
    both = (found.get("filter") or {}).get("and")
    if both and "tags" in both:
        both["tags"] = {tag["key"]: tag["value"] for tag in both["tags"]}
    return found


def _lifecycle_back(value: Any) -> Any:
    if isinstance(value, dict):
        return {key[0].lower() + key[1:]: _lifecycle_back(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_lifecycle_back(item) for item in value]
    return value.isoformat() if hasattr(value, "isoformat") else value


def _put_lifecycle(s3: Any, inputs: Tree) -> Any:
    setup = {"Rules": [lifecycle_rule(rule) for rule in inputs.get("rules") or []]}
    return s3.put_bucket_lifecycle_configuration(Bucket=inputs["bucket"], LifecycleConfiguration=setup)


def _get_lifecycle(s3: Any, bucket: str) -> Tree:
    rules = s3.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"]
    return {"rules": [lifecycle_inputs(rule) for rule in rules]}


def _put_policy(s3: Any, inputs: Tree) -> Any:
    return s3.put_bucket_policy(Bucket=inputs["bucket"], Policy=inputs["policy"])


def _get_policy(s3: Any, bucket: str) -> Tree:
    policy = s3.get_bucket_policy(Bucket=bucket)["Policy"]
    return {"policy": policy if isinstance(policy, str) else json.dumps(policy)}


_BUCKET: Final = Entry(
    token="aws:s3/bucket:Bucket",
    covers=words("bucket bucketPrefix forceDestroy objectLockEnabled"),
    replace_on=words("bucket bucketPrefix objectLockEnabled"),
    computed=words("objectLockEnabled"),
    defaults={"forceDestroy": False},
    naming=Naming(property="bucket", longest=63, prefix_property="bucketPrefix", lower=True),
    one_of=(words("bucket bucketPrefix"),),
    create=_bucket_create,
    read=_bucket_read,
    update=_bucket_update,
    delete=_bucket_delete,
)
_VERSIONING: Final = _setting(
    "aws:s3/bucketVersioning:BucketVersioning",
    covers="versioningConfiguration",
    put=_put_versioning,
    get=_get_versioning,
    delete=_suspend_versioning,
)
_ENCRYPTION: Final = _setting(
    "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration",
    covers="rules",
    put=_put_encryption,
    get=_get_encryption,
    delete=lambda s3, inputs: s3.delete_bucket_encryption(Bucket=inputs["bucket"]),
)
_LIFECYCLE: Final = _setting(
    "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration",
    covers="rules",
    put=_put_lifecycle,
    get=_get_lifecycle,
    delete=lambda s3, inputs: s3.delete_bucket_lifecycle(Bucket=inputs["bucket"]),
)

ENTRIES: Final = [
    _BUCKET,
    _VERSIONING,
    _ENCRYPTION,
    _LIFECYCLE,
    _setting(
        "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock",
        covers=" ".join(_BLOCKS),
        put=_put_block,
        get=_get_block,
        delete=lambda s3, inputs: s3.delete_public_access_block(Bucket=inputs["bucket"]),
    ),
    _setting(
        "aws:s3/bucketOwnershipControls:BucketOwnershipControls",
        covers="rule",
        put=_put_ownership,
        get=_get_ownership,
        delete=lambda s3, inputs: s3.delete_bucket_ownership_controls(Bucket=inputs["bucket"]),
    ),
    _setting(
        "aws:s3/bucketPolicy:BucketPolicy",
        covers="policy",
        put=_put_policy,
        get=_get_policy,
        delete=lambda s3, inputs: s3.delete_bucket_policy(Bucket=inputs["bucket"]),
        documents=words("policy"),
    ),
]
