"""The EKS API: clusters that are real control planes, node groups whose nodes are EC2 instances, and access.

service      maps operations to functions; also the EKS Auth endpoint. Read it first
clusters, nodegroups, addons, access_entries, pod_identities, tags   the operations
state        what exists while the daemon runs; model: its values and their JSON; errors: EKS's exceptions
rules        decides what a node group does next; reconcile: does it, one thread per cluster
specs        the specifications of control planes and nodes; machine: the interface to localcloud.kube
token        checks the tokens of `aws eks get-token`; pod_webhook: adds credentials to pods
idempotency  `clientRequestToken`
"""
