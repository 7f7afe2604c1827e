"""From a training script to its session: what the script brings, and its own loop.

content    the script's data and model, prepared, and what is compared with those of other workers
entry      the command line at the beginning, and the exit code at the end
own_loop   a loop of the script's own, with every promise of the runtime
"""
