"""Training scripts that use the trainer as a user would. `images` comes with the stack, `elasticjob` with manifests."""
