"""What runs in the cluster to control the training job. Imports `contract` and third parties.

start    entry point of the controller's pod: makes its packages available, then runs it
"""
