"""Whether pods have room on nodes that are there: what the scheduler would find, for clusters that bring no new nodes.

    room = watch.room()                 # a Room, or None if that can't be known
    room.free().place(demand)           # whether all pods of a demand have room at once

requests   what a pod asks of a node, from its spec
placement  which nodes a pod may be on
packing    the room that is left, and whether many pods fit into it
watch      keeps nodes, pods and priority classes current while a job waits for room

It computes from pod templates. What changes pods when they are created (a LimitRange, a webhook) isn't taken into
account, nor is a ResourceQuota.
"""
