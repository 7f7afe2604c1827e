"""The EKS API: clusters that are real control planes, node groups whose nodes are EC2 instances, and access."""
