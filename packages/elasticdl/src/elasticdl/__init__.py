"""Training by a master that hands out small tasks of data, parameter servers, and workers that may come and go.

The commands, flags and terms are those of ElasticDL (https://github.com/sql-machine-learning/elasticdl), on PyTorch.

errors          every error that a person may see, in two parts: the input at fault, and the remedy
__main__        `python -m elasticdl`
client          the command `elasticdl train | evaluate | predict | zoo | data`: from its flags to what is submitted
job             what the processes of a job need to know of the flags
data            readers of RecordIO and CSV on a volume or in S3; writers of RecordIO
zoo             a model's functions loaded and checked; optimizers, metrics, callbacks; `zoo init`, `build`, `push`
layers          embeddings with rows that may be on the parameter servers
embedding_init  the first value of an embedding's row, the same wherever it is created
rpc             the protocol between master, parameter servers and workers
master          tasks: to do, doing, done; evaluation; the job's state
ps              parameter servers: dense parameters by name, embedding rows by id
worker          takes tasks, computes gradients, pushes them
allreduce       the strategy AllreduceStrategy: the elastic trainer with a model of the zoo
api             for a script with a training loop of its own: shards from the master, a fixed global batch
local           a whole job in one process
"""
