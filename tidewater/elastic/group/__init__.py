"""The process group of torch, formed again in the running process when the membership changes.

group        collectives with deadlines that can be interrupted, and the generation they belong to
backend      what differs between gloo and NCCL: when a collective is done, how it fails, how the group is formed again
gloo         sums on CPUs, with two ways to form the group again, and the end of its connections
nccl         the same on GPUs
attempts     calls that can't be interrupted, in threads that can be abandoned
nccl_environment  the variables with which NCCL lets a process survive the death of a peer
mesh         the processes of one worker that divide a model, as torch sees them
siblings     the processes of one worker give a generation up together
replica      the processes of one worker that divide a model vote, so that none acts alone
rendezvous   the store at which the ranks of one generation meet
ballot       a seal that shows whether a result is a sum over the ranks of this generation
reducer      sums the gradients of a step over the ranks, during the backward pass
broadcast    copies the tensors of the state from one rank to those that need them
buckets      which gradients are summed together, and the memory in which they are summed
"""
