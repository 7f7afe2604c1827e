"""A worker: takes tasks from the master, computes gradients, pushes them to the parameter servers.

loop         what a worker does, one task after the other
step         the gradients, an evaluation and the predictions of one minibatch
batches      the minibatches of a task, read ahead by a thread
parameters   where the model is: on the parameter servers, or elsewhere for a job in one process
master       the worker's side of the protocol with the master
ending       why a worker ends: SIGTERM, or the job is over
predictions  where predictions go
exported     the final model, written and read
places       a folder for what a job writes, on a volume or in S3
"""
