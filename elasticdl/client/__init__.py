"""The command `elasticdl`: from the flags of ElasticDL's client to an ElasticJob on the cluster.

app          the commands, and what happens to an error
commands     train, evaluate, predict
folders      zoo init, zoo build, zoo push, data write
mistakes     what is wrong with a command line, all of it in one error
commandline  from the words of a command line to the values of the flags; all mistakes at once
flags        every flag: how its text is read, for which commands, its default
refused      flags of ElasticDL that have no meaning here, and why
values       what the texts of flags mean: resources, volumes, environments, priorities
asked        what was asked for, as typed values: the job's arguments and the deployment
conflicts    what doesn't fit together, each with the remedy
models       whether the model's functions are in the zoo, without running it
shipping     the archive with the code of the processes and the zoo, and its upload
pods         the pod templates of master, parameter servers and workers
podspec      additions to the pods, from --cluster_spec
manifest     the ElasticJob
submit       reads what the stack says of itself, sends the job or writes it to a file
"""
