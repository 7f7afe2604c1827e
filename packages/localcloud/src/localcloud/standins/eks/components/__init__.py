"""The component `Cluster` of the `eks` package: its children and its outputs.

cluster          read it first: the cluster, its role and access entries. `cluster_outputs`: its outputs
addons           the addons that a cluster has by default
kubeconfig       the kubeconfig of a cluster
"""
