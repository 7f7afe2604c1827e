"""What the master knows and decides, without any effect: frozen values, pure functions, the time as an argument.

task_queue   to do, doing, done
plan         which records each task has: a function of shards, seed and epoch
state        all that must not be forgotten, as one value, and its JSON
transitions  what may happen to a job: functions from state to state
decide       what the master itself has to do next
"""
