"""Training scripts that use the runtime as a user would: `elasticjob` comes with manifests."""
