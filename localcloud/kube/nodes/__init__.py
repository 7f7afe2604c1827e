"""Nodes of a cluster, each a simulated host with namespaces, a root file system and cgroups of its own.

node      starts and ends a node; read it first
config    what kubelet, containerd, CNI and kube-proxy are told
rootfs    the node's root: its own folders, and what of the host is mounted into it
init      process 1 of a node: assembles the root, then keeps the services running
cgroups   a node's cgroups, in the hierarchies of v1 or in that of v2
devices   which devices a node's processes may open
pod_identity_agent   a service of every node that gives pods the credentials of their roles
"""
