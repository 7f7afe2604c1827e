"""`python -m scripts.sweep STACK`: find and delete what a destroyed stack has left in its AWS account.

`pulumi destroy` deletes what Pulumi made. AWS, and what ran in the cluster, made more: backups, log groups, network
interfaces, load balancers. The sweep finds these by the tags and the name of the stack. It lists them, and deletes
nothing without `--delete`.

    python -m scripts.sweep production              # what is left?
    python -m scripts.sweep production --delete     # list, ask, delete; --yes doesn't ask

model      a stack's name and tags, what belongs to it, a thing that is left
compute    instances, volumes, launch templates, placement groups, instance profiles, roles
network    load balancers, network interfaces, security groups
storage    log groups, recovery points of EFS, the pull-through cache in ECR
account    one account and region: look for every kind, delete what was found
__main__   the command line
"""
