"""Processes: one for each GPU of a worker.

launcher   starts them, starts lost ones again, and passes signals on
gpus       which GPUs this process can see, found without torch
lifeline   child processes that end with their parent
"""
