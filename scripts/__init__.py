"""What the make targets run: the commands that a person could type, in order, with checks in between. And commands
for a stack, on AWS or here, after its cluster was deleted or its `pulumi up` was killed.

up           `make up`: start the one-machine cloud, deploy the stack, wait until it trains
down         `make down`: destroy the stack, stop the cloud
destroy      `pulumi destroy`, also after a killed `pulumi up`, or when the cluster was deleted without Pulumi
address      lets the addresses of the config reach the API of a stack that can no longer be reached
adopt        take over the cluster, node groups and addons that a killed `pulumi up` was making
session      this checkout's cloud and stack, as subprocesses in the environment of `activate`
updates      `pulumi up` and `pulumi destroy`, with counts and what is in progress
progress     waits until the workers train
policy/      `python -m scripts.policy`: the least IAM policies for a stack of this config
roles        `python -m scripts.roles`: the IAM roles for `roleArns`, with their trust and their policies
sweep/       `python -m scripts.sweep`: what a destroyed stack has left in its AWS account
virtual_machine/ a kernel with cgroup v2 only, in qemu, on which `make soak-v2` runs tests
toolchain/   what `make install` builds or finds: tools, Python packages, images
"""

import sys

if sys.version_info < (3, 11):  # noqa: UP036
    # Here, since any Python 3 can read this file: the others would end with a traceback.
    version = ".".join(map(str, sys.version_info[:2]))
    sys.exit(
        "error: " + sys.executable + " is Python " + version + " and this needs 3.11 or later: install the "
        "distribution's (apt-get install python3) or name one with `make PYTHON=/path/to/python3`"
    )
