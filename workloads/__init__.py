"""What runs on the cluster, as pure manifests and thin Pulumi components. Imports only `outputs` from `infra`.

manifests    what the manifests have in common
objects      makes a Pulumi resource of a manifest or a chart
namespace    the namespace, its priority classes, and the credentials with which nodes pull images
network_policies   what the namespace's pods may reach, and who may reach them
storage      the shared file system as volume and claim
access       the service account of the training pods, and its IAM role
etcd         etcd, in which the workers find each other
bundle       the training code as a zip in the bucket
packages     the Python packages in that zip, which images with PyTorch lack
in_bundle/   files that the program does not import but puts into that zip
filling/     the jobs that fill a folder of the shared file system once: the dataset
controller   the ElasticJob controller, from the manifests in `tidewater.elasticjob.install`
karpenter    Karpenter, and the nodes that it brings
devices/     the device plug-ins of NVIDIA and of Elastic Fabric Adapters, and the check that the worker nodes have GPUs
monitoring/  Prometheus, alert rules, the Grafana dashboard, DCGM exporter
training     the training job, an ElasticJob
logs/        what keeps the logs of jobs, with `jobLogDays`
teams        the namespace of each team: rights, quotas, and what its jobs need
people       the role of teams' people
exports      the stack's outputs, and what the stack tells the tools that submit jobs to it
"""
