"""ElasticJobs to apply, as in docs/elasticjob.md, and a training for them that needs no dataset.

    kubectl create namespace elastic-job
    kubectl apply -f examples/elasticjob/etcd.yaml -f examples/elasticjob/torchrun.yaml

train  the training: a small network that learns which of two numbers is larger, from numbers that it makes itself
"""
