"""The controller of ElasticJobs. It runs in the cluster, and imports `contract` and third parties.

    python -m tidewater.controller --workers 16

Whatever changes makes the jobs that it concerns due (`store`, `work`); for each job that is due, `decide` says what to
do, without doing it, and `act` does it; `loop` repeats this until there is nothing left to do. None of it remembers
anything that it could not find out again, so that the process may be killed at any time.

__main__      `python -m tidewater.controller`
start         makes the packages available that the image lacks
options       what the command line says of what to look after
main          the command line and the process: probes, election, controller
loop          reconciles every job that is due
decide/       what to do about one job: pure functions
act           carries out what was decided
objects       the pods and the service of a job, as pure functions
store         what is known: jobs, pods, services, nodes
pod_index     the pods of all jobs, by job and by node
views         what the decision reads of a pod or a node
admission/    which job of a queue may have pods, and how many under the quotas of teams
sharing/      the arithmetic of these quotas: who lends what to whom
room/         whether pods have room on the nodes that are there
work          the queue of jobs that are due
provisioning/ why no node comes for a pod, in Karpenter's words
progress/     whether the workers of running jobs make steps, as their metrics say
cluster/      the door to the Kubernetes API: requests, mirrors, leader election
observe/      log, Kubernetes events, metrics, probes
"""
