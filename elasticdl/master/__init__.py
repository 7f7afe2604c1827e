"""The master of a job: hands out tasks, evaluates, lets the servers write checkpoints, and survives its own death.

task_queue   to do, doing, done: pure transitions
plan         which records each task has: a pure function of shards, seed and epoch
state        all that must not be forgotten, as one frozen value, and its JSON
transitions  what may happen to a job: pure functions from state to state
decide       what the master itself has to do next: a pure function of the state
coordinator  the state in one place: each call is one transition, saved before it is answered
store        where the state is saved: etcd, with fencing by compare-and-set, or memory
leadership   which of several masters leads: by a lease
scores       the metrics of an evaluation, combined exactly
servers      what the master asks of all parameter servers at once
acting       does what `decide` says
service      the gRPC service
beginning    from flags, zoo and data to plans, rules and the first state
program      the process: command line, logs, signals, the order of start and end
"""
