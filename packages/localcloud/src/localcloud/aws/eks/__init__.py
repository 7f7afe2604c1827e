"""The EKS API: clusters with real control planes, node groups of EC2 instances, and access.

service      maps operations to functions; also the EKS Auth endpoint. Read it first
operations/  what each operation does, one module per kind of object
nodes/       how EC2 instances become nodes
token        the user of a token of `aws eks get-token`, which API servers ask for
state        what exists while the daemon runs; model: its values and their JSON; errors: EKS's exceptions
rules        decides what a node group does next; reconcile: does it, one thread per cluster
specs        the specifications of control planes and nodes; machine: the interface to localcloud.kube
"""
