"""A cloud on one machine: AWS's APIs, EKS clusters that are real Kubernetes, nodes that are simulated hosts.

Run it with `python -m localcloud start`; see `localcloud.cli`.
"""
