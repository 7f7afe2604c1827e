"""The command `elasticdl`: from the flags of ElasticDL's client to an ElasticJob on the cluster.

app       the commands, and what happens to an error
commands  train, evaluate, predict
zoo       zoo init, zoo build, zoo push
data      data write, here or in a pod
writing   what that pod runs
flags/    from the words of a command line to typed values; all mistakes at once
job/      from these values to the ElasticJob, and to the cluster
"""
