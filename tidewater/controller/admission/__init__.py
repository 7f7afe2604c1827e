"""Which jobs may have pods, and how many: what is remembered of all of them, and which of them a change concerns.

queues    which job of a queue may have pods
quotas    how many workers a job may have under the quotas of teams
"""
