"""The processes of a worker, one for each GPU, and how processes are started and ended.

launcher   finds the GPUs, starts the processes, restarts lost ones, and forwards signals
lifeline   child processes that end with their parent
program    the program of this process, to be run again
signals    signals as events of a loop
zygote     a process that has imported torch, and forks others
farm       a zygote and its forked processes, as another program sees them
"""
