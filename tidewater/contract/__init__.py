"""The names and numbers that Tidewater's processes share. Imports the standard library only.

The program that writes a manifest and the process that runs in the pod import the same
module, so each of these is written in exactly one place.

archive       a zip of sources, the same bytes for the same files
code          how code gets from the bucket into a pod
controller_program  what the controller's manifests and its program agree on
devices       the workers' GPUs: the name of the resource, the namespace of the device plug-in
env           environment variables: the manifests set them, the trainer reads them
exit_codes    exit codes of the trainer, and what each means
keys          keys of the records in etcd, and the records' versions
labels        labels of the Kubernetes objects, and selectors made of them
leaving       how long a worker may take to leave after SIGTERM
metrics       the ports on which the workers serve their metrics, and say whether they are ready
pod_defaults  what the manifests of pods and namespaces have in common
rehearsal     what the workers of `tidewater rehearse` record, and what they read
stack         what a stack tells the tools that submit jobs to it
tls           what the clients of an API server change in Python's TLS settings
"""
