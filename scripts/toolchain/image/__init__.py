"""The nodes' image: what every simulated node of the one-machine cloud starts from.

build     the step of the set-up: layers, their import into a containerd root; read it first
archive   container images as an OCI archive
"""
