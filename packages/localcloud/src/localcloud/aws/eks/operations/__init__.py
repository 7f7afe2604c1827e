"""The operations of the EKS API, one module per kind of object; `service` maps the operations to these functions.

clusters, nodegroups   check and record what is wanted; `reconcile` carries it out
addons                 the addons of a cluster
access_entries         who may log in, and the role bindings of the access policies
pod_identities         which role a service account's pods get; also exchanges a pod's token for credentials
tags                   tags of any of these objects
idempotency            repeats the reply of a create call that has the same `clientRequestToken`
"""
