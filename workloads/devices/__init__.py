"""Devices of the worker nodes: who tells Kubernetes about them, and who looks whether it worked.

plugin       NVIDIA's device plug-in, in a namespace of its own
efa          the device plug-in of Elastic Fabric Adapters
check        the job after which training starts: every worker node has its GPUs, or none came in time
in_pod/      the program that this job runs; the Pulumi program does not import it
"""
