"""What workers ask of each other without etcd and without the process group.

server      the small TCP server in every worker: state, traits, and whether it is alive
transfer    a tree of values and tensors through a socket, in checksummed chunks
tensors     tensors as bytes
handover    at the start of a generation everyone gets the state of the rank that is furthest
heartbeat   finds peers that are frozen or cut off
"""
