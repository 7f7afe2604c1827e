"""The nodes of a cluster. Each is a simulated host with its own namespaces, root file system and cgroups.

node      starts and ends a node; read it first
config    the configuration of kubelet, containerd, CNI and kube-proxy
rootfs    the node's root: its own folders, and the folders of the host that are mounted in it
init      process 1 of a node: assembles the root, then keeps the services running
pod_identity_agent   a service on each node with this addon: gives pods the credentials of their roles
"""
