"""The protocol between master, parameter servers and workers (gRPC), and what both sides of a call need.

elasticdl.proto       the messages and services; the files `elasticdl_pb2*` are made of it by `generate`
generate              makes them
tensors               torch's tensors as messages, and back
channels              connections that notice a dead peer, and calls that wait for one that is restarted
elasticdl_pb2         generated: messages
elasticdl_pb2_grpc    generated: services
"""
