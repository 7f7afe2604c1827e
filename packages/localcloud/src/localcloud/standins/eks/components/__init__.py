"""The components of the `eks` package: the children of each, and its outputs.

cluster          `Cluster`; read it first. `cluster_outputs`: its outputs
service_role, security_groups, access   the children of a cluster: roles, security groups, access entries
addons           `Addon`, `VpcCniAddon`, and the addons that a cluster has by default
endpoint         waits until a new cluster's API server answers; kubeconfig: the kubeconfig of a cluster
node_group       `ManagedNodeGroup`; ami: the image that its nodes get
"""
