"""What the make targets run: the commands that a person could type, in order, with checks in between. And commands
for a stack, on AWS or here, after its cluster was deleted or its `pulumi up` was killed.

up           `make up`: start the one-machine cloud, deploy the stack, wait until it trains
down         `make down`: destroy the stack, stop the cloud
destroy      `pulumi destroy`, also when the cluster was deleted without Pulumi
adopt        take over the cluster, node groups and addons that a killed `pulumi up` was making
session      this checkout's cloud and stack, as subprocesses in the environment of `activate`
updates      `pulumi up` and `pulumi destroy`, with counts and what is in progress
progress     waits until the workers train
sweep/       `python -m scripts.sweep`: what a destroyed stack has left in its AWS account
toolchain/   what `make install` builds or finds: tools, Python packages, images
"""
