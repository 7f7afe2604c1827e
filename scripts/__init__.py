"""What the make targets run: the commands that a person could type, in order, with checks in between.

up           `make up`: start the one-machine cloud, deploy the stack, wait until it trains
down         `make down`: destroy the stack, stop the cloud
session      this checkout's cloud and stack, as subprocesses in the environment of `activate`
updates      `pulumi up` and `pulumi destroy`, with counts and what is in progress
progress     waits until the workers train
sweep/       `python -m scripts.sweep`: what a destroyed stack has left in its AWS account
toolchain/   what `make install` builds or finds: tools, Python packages, images
"""
