"""The cluster of a provider: `client` (what it asks of the API, by `tidewater.kube`), `kinds`, `scopes`, `schema`."""
