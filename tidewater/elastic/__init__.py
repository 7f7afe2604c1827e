"""The elastic trainer: data-parallel training that continues while workers join and leave.

Read first: `training` (what a script brings), then in `session/` the modules `session` (generation after generation),
`loop` (step after step), `step` (one step on one rank) and `state` (everything that training changes). Each line uses
only what is in the lines below it:

    runtime      command line -> session -> loop; `main` has the other commands
    rehearsal/   what a worker records for `tidewater rehearse`
    packages/    people's packages, which a job installs once
    sharded/     what differs in a worker of several processes that divide a model
    session/     the training of one worker, from joining the others to the exit code
    buffers/     what passes change besides gradients
    torchrun/    etcd v3 as a rendezvous for plain torchrun     method/      how the model learns
    group/       the process group of torch, formed again in the process
    peer/        state and signs of life from worker to worker
    membership/  who trains together                            data/        which samples, in which order
    launch/      one process for each GPU                       checkpoint/  for when all workers are gone
    config       the settings of a worker; `flags` are those of its command line
    etcd/        the only way to etcd                           observe/     log, metrics, report
    storage/     files on a volume or in S3

and `training`, `tree`, `sharding`, `compiled`, `addresses`, `errors` and `machine_errors`, which all of these share.

Importing any of these modules has no effect. torch is imported only where it is used, so that the first log line of a
worker does not wait for it.
"""
