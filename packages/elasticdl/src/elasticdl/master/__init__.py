"""The master of a job: hands out tasks, evaluates, lets the servers write checkpoints, and survives its own death.

tasks        the pure part: queue, plan, state, transitions, decision
coordinator  the state in one place: each call is one transition, saved before it is answered
store        where the state is saved: etcd, with fencing by compare-and-set, or memory
scores       the metrics of an evaluation, combined from those of its tasks
servers      what the master asks of all parameter servers at once
executor     does what `tasks.decide` says
service      the gRPC service
resume       from flags, zoo and data to plans, rules and the first state
progress_log the log, and how far the job is
program      the process: command line, signals, the order of start and end, which of several masters leads
"""
