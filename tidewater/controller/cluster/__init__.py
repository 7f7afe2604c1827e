"""The controller's door to the Kubernetes API. Nothing else in the controller sends a request.

client   `Cluster`: what the controller asks of an API server, and the kinds of objects
errors   what a request may fail with, by what the caller can do about it
http     `ApiServer`: a `Cluster` over HTTP, with lightkube's configuration and authentication
mirror   copies of the objects in memory, kept current by list and watch
lease    leader election: the decision and the loop
fence    stops the writes of a process that may no longer be the leader
"""
