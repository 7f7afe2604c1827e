"""How the API server is reached, with the kubeconfig alone.

kubeconfig  which files, merged as kubectl merges them, and the context
client      an HTTP client with the TLS settings and the credentials
plugin      login plug-ins: `aws eks get-token` and others
server      requests and answers; implements `tidewater.cli.kube.Cluster`
"""
