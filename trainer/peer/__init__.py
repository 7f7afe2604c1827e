"""Communication between workers that uses neither etcd nor the process group.

server      the small TCP server in every worker, for state, traits and pings
transfer    sends a tree of values and tensors through a socket, in chunks with checksums
tensors     tensors as bytes
handover    at the start of a generation, gives all ranks the state of the rank that is furthest
heartbeat   finds peers that are frozen or cut off
"""
