"""The protocol between master, parameter servers and workers (gRPC), and what both sides of a call need.

elasticdl.proto       the messages and services
generate              compiles them to `elasticdl_pb2` (messages) and `elasticdl_pb2_grpc` (services), not in git
tensors               torch's tensors as messages, and back
channels              connections that notice a dead peer, and calls that wait for one that is restarted
"""

from elasticdl.rpc import generate

if _problem := generate.problem():
    raise ImportError(_problem)
