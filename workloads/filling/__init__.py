"""Jobs that fill a folder of the shared file system once, before the workers' nodes are started.

job      what they have in common: the pod, the time limit, how Pulumi sees a failure
dataset  the data; or, for a dataset that stays in S3, its volume
packages the Python packages of people's scripts
"""
