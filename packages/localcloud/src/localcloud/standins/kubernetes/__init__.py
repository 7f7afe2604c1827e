"""A stand-in for the Kubernetes provider plug-in (pulumi-resource-kubernetes 4.34), for the unmodified engine and SDK.

    python -m localcloud.standins.kubernetes ENGINE_ADDRESS

`provider` answers the engine, `operations` acts on a cluster; `__main__` answers for the one component, in `helm`.
Below them: `metadata` and `state` (objects and their properties), `config`, `engine` (messages to the user),
and the packages `cluster` (the API server), `decide` (what a change means) and `awaiting` (when an object is ready).
"""
