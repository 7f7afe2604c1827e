"""The AWS side of the stack, as Pulumi components that take `(name, args, opts)`. Never imports `workloads`.

account          the AWS provider and the account behind it
preflight        what the region and the account must have, checked before anything is made
network          VPC, subnets, routes, NAT gateways, flow logs
zones            the stack's zones, their address ranges, and which of them have the worker nodes
encryption       the KMS key, and the names of the log groups that it encrypts
bucket           the S3 bucket for code and checkpoints
identity         IAM roles of nodes, the EFS CSI driver, the training pods and those of teams
policies         policy documents and what each role is, as pure functions
cluster          the EKS control plane, and the addons that nodes need
node_groups      managed node groups for the system and for the workers
image_cache      rules that let nodes pull images through ECR, and the images' names there
karpenter        what Karpenter needs: roles, pod identity, and the queue of interruption notices
shared_storage   the EFS file system
addons           addons with pods that need a node: CoreDNS, EFS CSI driver, node monitoring agent
managed_prometheus  workspace and collector of Amazon Managed Service for Prometheus
outputs          what `workloads` gets to see of all this
"""
