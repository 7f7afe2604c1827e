"""The elastic trainer: data-parallel training that continues while workers join and leave.

Read first: `training` (what a script brings), `loop` (generation after generation), `step` (one step on one rank),
`state` (everything that training changes). Then:

    runtime      command line -> parts -> loop; `config` and `flags` are the command line
    membership/  who trains together            group/    the process group of torch, re-formed in the process
    etcd/        the only way to etcd           peer/     state and signs of life from worker to worker
    data/        which samples, in which order  checkpoint/  for when all workers are gone
    method/      how the model learns           passes/   memory, batch normalization
    launch/      one process for each GPU       observe/  log, metrics, report
    torchrun/    etcd v3 as a rendezvous for plain torchrun
    storage/     files on a volume or in S3, which data/ and checkpoint/ read and write

Importing any of these modules has no effect. torch is imported only where it is used, so that the first log line of a
worker does not wait for it.
"""
