"""The controller's door to the Kubernetes API. Nothing else in the controller sends a request.

client   `Cluster`: what the controller asks of an API server
http     `ApiServer`: a `Cluster` over HTTP, with lightkube's configuration and authentication
mirror   copies of the objects in memory, kept current by list and watch
lease    leader election: the decision and the loop
fence    stops the writes of a process that may no longer be the leader

Kinds of objects, their paths, and what a request may fail with are those of `tidewater.kube`.
"""
