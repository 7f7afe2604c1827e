"""What runs in the cluster to steer the training job. Imports `contract` and the standard library."""
