"""An application becomes an ElasticJob. All of it is pure but `preflight` and `overlay.read`.

    manifest = elastic_job(app, Submission(unique="kx3p", namespace="training", options=Options.of(cfg)))

options    the run options: their types, defaults and checks
checks     what is wrong with an application, before anything is asked
preflight  what the cluster says of an application, before anything is made
job        the whole ElasticJob
naming     names of applications, replica types and labels
retries    retries and retry policies
roles      a role with its macros filled in, for Kubernetes to run
torchrun   torchrun's command line within a role, and how its agents meet in etcd
pods       a role as a pod template
overlay    further fields of its pods
appdef     an application as JSON and back
"""
