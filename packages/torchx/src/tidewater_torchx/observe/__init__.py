"""What became of an application: its ElasticJob and its pods, as TorchX has it.

stored     the application that a job runs
states     a job and its pods as TorchX's states, with sentences
failures   why a replica failed: exit code, reason, last lines
logs       the log of one replica, also while its pod is replaced
"""
