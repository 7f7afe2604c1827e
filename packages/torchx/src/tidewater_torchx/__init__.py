"""A scheduler of TorchX 0.7: `torchx run --scheduler tidewater …` runs an application as an ElasticJob.

    scheduler = create_scheduler("session")
    info = scheduler.submit_dryrun(app, {"namespace": "training"})     # info.request.resource is what will be sent
    app_id = scheduler.schedule(info)                                  # training:app-kx3p

TorchX finds it by its entry point; docs/torchx.md is the guide. Pure modules decide what is sent and what an
answer means; `scheduler`, `submit/preflight` and `observe/logs` ask the cluster, and `workspace` uploads.

scheduler   what TorchX calls: thin
commands    `torchx delete` and `torchx log --since`; TorchX's own subcommands, with sentences as errors
submit/     an application becomes an ElasticJob: options, checks, names, pods
observe/    what became of it: states, failures, logs
workspace   a working directory goes with its job
ray         TorchX's scheduler for Ray, without its crash where Ray isn't installed
errors      what is raised
"""
