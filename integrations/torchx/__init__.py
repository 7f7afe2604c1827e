"""A scheduler of TorchX 0.7: `torchx run --scheduler tidewater …` runs an application as an ElasticJob.

    scheduler = create_scheduler("session")
    info = scheduler.submit_dryrun(app, {"namespace": "training"})     # info.request.resource is what will be sent
    app_id = scheduler.schedule(info)                                  # training:app-kx3p

TorchX finds it by its entry point; docs/torchx.md is the guide. Pure modules decide what is sent and what an answer
means; `scheduler` and `preflight` ask the cluster, `logs` reads from it, `workspace` uploads.

scheduler   what TorchX calls: thin
commands    `torchx delete`, and `torchx log --since`
options     the run options: their types, defaults and checks
checks      what is wrong with an application, before anything is asked
preflight   what the cluster says of an application, before anything is made
naming      names of applications, replica types and labels
roles       a role with its macros filled in, for Kubernetes to run
torchrun    torchrun's command line within a role, and how its agents meet in etcd
retries     retries and retry policies
pods        a role as a pod template
job         an application as an ElasticJob
appdef      an application as JSON and back
workspace   a working directory goes with its job
observe/    what became of an application: states, failures, logs
errors      what is raised
"""
