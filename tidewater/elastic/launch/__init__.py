"""The processes of a worker, one for each GPU, and how processes are started and ended.

launcher   starts the processes, restarts lost ones, leaves out those with a failed GPU, and forwards signals
rules      what to do when a process has ended
nodes      launchers on several machines, with the processes of one worker
gpus       the GPUs, without torch
device     the GPU of this process
lifeline   child processes that end with their parent
program    the program of this process, to be run again
project    runs a script in a person's folder
signals    signals as events of a loop
zygote     a process that has imported torch, and forks others
farm       a zygote and its forked processes, as another program sees them
"""
