"""A worker of several processes that divide a model with ``fully_shard``: what differs from a worker of one process.

membership  the part of its further processes in the membership
session     its session: one flow of control in all processes, which vote where each may meet a failure alone
stepper     its steps: sums over the workers first, then over the processes of each
prepare     what is set in the model before training
"""
