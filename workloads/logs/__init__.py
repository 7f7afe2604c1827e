"""Logs of jobs that stay after the pods: a Deployment that writes them to the shared file system."""
