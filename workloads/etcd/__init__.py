"""etcd, in which the workers find each other.

manifests    the members, the services in front of them, who may reach them
component    these as a component of the stack
in_pod/      the program that decides how a member starts, in its pod
"""
