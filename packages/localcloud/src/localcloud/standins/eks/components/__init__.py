"""The component `Cluster` of the `eks` package: its children and its outputs.

cluster          read it first. `cluster_outputs`: its outputs
service_role, access   the children of a cluster: its role, access entries
addons           the addons that a cluster has by default
kubeconfig       the kubeconfig of a cluster
"""
