"""What runs on the cluster. Knows of the infrastructure only what `infra.outputs` holds."""
