"""The job of a command line: what it needs, what it looks like, and how it is sent.

models    whether the model's functions are in the zoo, without running it
shipping  the archive with the code of the processes and the zoo, and its upload
pods      the pod templates of master, parameter servers and workers
manifest  the ElasticJob
preflight what the cluster says of the job before anything is made: the stack's facts, what is missing, what is refused
data_pod  a pod that writes data onto the volume
submit    sends the job or writes it to a file
"""
