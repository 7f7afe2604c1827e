"""The processes of a worker, one for each GPU.

launcher   finds the GPUs, starts the processes, restarts lost ones, and forwards signals
lifeline   child processes that end with their parent
signals    signals as events of a loop
"""
