"""The AWS side of the stack: network, cluster, nodes, storage, identities. Never imports `workloads`."""
