"""The training of one worker, from joining the others to the exit code. Read `session`, `loop` and `step` first.

session     generation after generation: meet, exchange, update, give up, end
loop        step after step of a training that samples divide into steps; written with `session`
step        one step on one rank: both passes, the sums, the optimizers
state       everything that training changes
worker      what a worker consists of
assembly    opens a session
handover    all ranks of a generation get the state of the rank that is furthest
reports     a step is reported to script, log and metrics when it is final
evaluation  the score of the model, by all ranks together
ending      the job is finished, or this worker leaves
liveness    whether it is worth waiting for the other members
fencing     a worker that was cut off makes nothing final
warmup      the first passes, before the others know of the worker
memory      smaller micro-batches when memory does not suffice
"""
