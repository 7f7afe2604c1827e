"""Access to a cluster: `kubeconfig` and `credentials` (where, as whom), `client` (the API), `kinds`, `schema`."""
