"""The strategy AllreduceStrategy: a model of the zoo, trained by this project's elastic trainer.

    python3 -m elasticdl.allreduce --job mnist --etcd http://etcd:2379 --job_args JSON

Each worker holds the whole model, and there are neither a master nor servers: the workers find each other in etcd. The
trainer's own sampler divides each step's samples among the workers, so that every sample is used exactly once in each
epoch, for any number of workers, and also when workers are lost.

`--minibatch_size` is that of one worker, as in ElasticDL. A step has `minibatch_size` x `num_workers` samples, however
many workers there are: fewer workers make several passes each. So learning rate and result don't depend on the number
of workers that are there (the trainer's `--batch-policy keep`).

__main__     the command line and the exit code
settings     the job's flags as those of the trainer
assembly     the model of the zoo as a `tidewater.Training`, its embedding tables as ordinary parameters
records      the records of a reader by index
hooks        what is said and done while the model is trained: the loss, evaluations, the final model
evaluating   the metrics of a copy of the model
"""
