"""Communication between workers that uses neither etcd nor the process group.

server      the small TCP server in every worker, for state, traits, pings and the rendezvous
handshake   proof on every connection that both ends know the job's secret
keyvalue    keys in the process of rank 0, at which the ranks of a generation meet
outline     what is sent of the state through a socket: everything but the content of its tensors
votes       how members send one another what they say about the membership
drift       finds workers that have a different state from the others
heartbeat   finds peers that are frozen or cut off
neighbours  whom each pings while none of those is silent
patience    how long a peer may leave a ping unanswered
stragglers  finds the peer that the others wait for in each step
silence     finds the peers that the others wait for in a job that makes no step
"""
