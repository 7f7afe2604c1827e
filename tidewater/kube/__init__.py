"""One client of the API server for short programs: the command line, TorchX, elasticdl and localcloud's plug-in.

    cluster = server.connect(Access(namespace="training"))
    cluster.get(PODS, "digits-worker-0")

cluster     `Cluster`: what programs ask of an API server, as a Protocol that tests implement with a fake
server      `Server`: a `Cluster` over HTTP
http        sends requests as the user of a connection, and turns what goes wrong into errors
login       how a user logs in: login plug-ins, tokens, passwords
kubeconfig  which files, merged as kubectl merges them, and the context
kinds       kinds of objects, and their paths
errors      what a request may fail with
advice      what a user can do about it

A leaf: it imports `tidewater.contract` at most. The controller has an asynchronous client of its own and shares
`kinds` and `errors`.
"""
