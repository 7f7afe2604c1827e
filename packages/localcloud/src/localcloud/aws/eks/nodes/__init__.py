"""How EC2 instances become nodes of a cluster.

config        the configuration of a node: nodeadm's NodeConfig, with the labels, taints and kubelet options in it
life          joins an instance to its cluster and ends it; EKS or another client launched it
self_managed  finds the instances that others have launched for a cluster
user_data     finds the NodeConfig in the user data of an instance
"""
