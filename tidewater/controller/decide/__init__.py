"""What to do about one ElasticJob, decided from what is observed. Pure: no client, no clock, no memory of its own.

    decision = decision.decide(view, now)       # actions in order, the new status, when to look again
    admissions = queue.admit(jobs, now)         # which jobs of a queue may have which pods

observed     what is observed of a job, its pods and the nodes
actions      what may be done about it
replicas     replicas of several pods, each as one
decision     the whole decision: the rules below, in their order
exits        what the end of a pod means: done, replaced, counted, or for good
sizes        the number of pods aimed for: bounds, allowed sizes, autoscaling
shrink       which pods leave when there are too many
displacement which pods leave because their node will go
pods         which pods of one replica type are created and deleted
finish       when a job has succeeded or failed, and what is left to do then
conditions   states, conditions and their sentences
queue        in which order the jobs of a queue start
"""
