"""Mistakes in one setting of a stack that exists, each with a part of the sentence that refuses it.

    key, value, named = REFUSED["vpcCidr"]     # the key and value as for `pulumi config set`, by --path if it is one

`test_place` has them all. The end-to-end tests set those in `ON_A_STACK` on one that trains: one for each place in the
program that refuses, and one that Pulumi reads as a number.
"""

from __future__ import annotations

REFUSED = {
    "out of range": ("workers", "99", "maxWorkers"),
    "another region": ("region", "eu-west-1", "region = eu-west-1: the stack is in us-west-2; set it back"),
    "another VPC": ("vpcCidr", "10.1.0.0/16", "vpcCidr = 10.1.0.0/16: the stack's VPC has 10.0.0.0/16; set it back"),
    "a VPC that was there": (
        "privateSubnetIds[0]",
        "subnet-0000000000000000a",
        "need vpcId, the VPC that they are in",
    ),
    "other zones": (
        "availabilityZones",
        "us-west-2c,us-west-2b",
        "availabilityZones = us-west-2c,us-west-2b: the stack began with 2, and EKS leaves the control plane in its",
    ),
    "another namespace": ("namespace", "elsewhere", "the stack's etcd, data and job are in training; set it back"),
    "namespace of Kubernetes' classes": ("namespace", "system", "names of priority classes can't"),
    "namespace of the controller": ("namespace", "tidewater-system", "belongs to the ElasticJob controller"),
    "job with the name of etcd": ("jobName", "etcd", "the stack's etcd has a service of this name"),
    "address of an example": ("publicAccessCidrs[0]", "203.0.113.7/32", "203.0.113.7/32: has documentation addresses"),
    "private address": ("publicAccessCidrs[0]", "192.168.1.7/32", "192.168.1.7/32: has private addresses"),
    "tag that is a number": ("tags.Cost", "12", "put it in quotes, or use --type string"),
    "tag of the program in another case": ("tags.project", "x", "tags = project: this tag is set by the program"),
    "tag with a comma": ("tags.Owner", "a, b", "tags.Owner = a, b: a tag may have letters, digits, spaces and"),
}

ON_A_STACK = ("out of range", "another region", "another VPC", "tag that is a number")
