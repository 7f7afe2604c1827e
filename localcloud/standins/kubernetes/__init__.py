"""A stand-in for the Kubernetes provider plug-in (pulumi-resource-kubernetes 4.34), for the unmodified engine and SDK.

    python -m localcloud.standins.kubernetes ENGINE_ADDRESS

The layers, each leaning on the ones before it only: `kinds`, `metadata`, `quantity`, `errors` (facts and pure
functions) → `diff`, `force_new`, `plan`, `check`, `state`, `field_managers` (pure) → `kubeconfig`, `credentials`,
`client`, `schema` (the API server) → `awaiting` (pure deciders and the loop that asks them) → `operations` → `provider`
(the protocol).
"""
