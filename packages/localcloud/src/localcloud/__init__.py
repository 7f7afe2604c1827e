"""A cloud on one machine: AWS's APIs, EKS clusters that are real Kubernetes, nodes that are simulated hosts.

cli         the commands of `python -m localcloud`; start reading here. operate: those that change a running cloud
control     how these reach the daemon
daemon      the process that runs everything; supervise: its child processes; namespace: its PID namespace
instance    the state directory: names, addresses, the operator's key
preflight, cleanup   checks before a start; removal of what a killed daemon leaves
host/       what both know of this machine: rights, inotify, cgroups
contexts    the kubeconfig; tools: `LOCALCLOUD_TOOLS`; errors: the exceptions
aws/        AWS's APIs on one endpoint
kube/       control planes, nodes, their network, addons
standins/   Pulumi plug-ins that replace the official ones; they import nothing else of localcloud
"""
