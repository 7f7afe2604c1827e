"""How the model of a training learns: what a script brings, made usable step after step.

optimizers  optimizers, schedulers and the hook before a step, as one; what holds on resume
modules     frozen parameters, modes and plain attributes of the modules, as part of the state
norms       batch normalization with one sample, and what is refused of it
losses      a step's loss as a mean, or as sums with weights
parallel    what is refused of torch's own parallelism
checks      what is refused before a worker joins
"""
