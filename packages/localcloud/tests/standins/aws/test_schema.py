"""`schema.json` matches the installed SDK, and the entries match `schema.json`."""

from __future__ import annotations

import subprocess
import sys

import pytest
from localcloud.standins.aws import schema, schema_from_sdk
from localcloud.standins.aws.registry import ENTRIES


def test_the_schema_file_matches_the_installed_sdk() -> None:
    assert schema_from_sdk.SCHEMA_FILE.read_text() == schema_from_sdk.expected()


def test_what_the_schema_reads_of_the_sdk_stays_usable() -> None:
    text = "from localcloud.standins.aws.schema_from_sdk import module_of; import pulumi_aws; {}; {}"
    read = "module_of('aws:ec2/defaultSecurityGroup:DefaultSecurityGroup')"  # first of all that has to do with EC2
    used = "pulumi_aws.ec2.DefaultSecurityGroup"
    subprocess.run([sys.executable, "-W", "ignore", "-c", text.format(read, used)], check=True)


@pytest.mark.parametrize("token", sorted(ENTRIES))
def test_an_entry_names_only_inputs_of_the_sdk(token: str) -> None:
    entry, inputs = ENTRIES[token], schema.input_names(token)
    spoken = {name.partition(".")[0] for name in entry.replace_on - {"*"}}
    spoken |= entry.covers | set(entry.defaults) | entry.ordered | entry.documents
    for group in entry.one_of:
        spoken |= group
    if entry.naming:
        spoken |= {entry.naming.property}
    if entry.tags:
        spoken |= {"tags"}
    assert spoken <= inputs
    spoken |= entry.computed
    assert spoken - {"tags"} <= entry.covers
    assert entry.recomputed | entry.secrets <= set(schema.outputs(token))


@pytest.mark.parametrize("token", sorted(ENTRIES))
def test_an_entry_covers_what_the_sdk_requires(token: str) -> None:
    assert set(schema.load()["resources"][token]["required"]) <= ENTRIES[token].covers
