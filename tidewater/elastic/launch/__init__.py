"""The processes of a worker, one for each GPU.

launcher   starts the processes, restarts lost ones, and forwards signals
gpus       finds the GPUs that this process can see, without torch
lifeline   child processes that end with their parent
"""
