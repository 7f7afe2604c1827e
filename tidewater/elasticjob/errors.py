"""What is raised for an object that is no valid ElasticJob."""

from __future__ import annotations


class InvalidJob(ValueError):
    """An object that is no valid ElasticJob; the message begins with the field, as the API server's own do.

    Args:
        path: The field at fault: `spec.replicaSpecs[Worker].replicas`.
        problem: What is wrong with it, or what would be right.
    """

    def __init__(self, path: str, problem: str) -> None:
        self.path = path
        self.problem = problem
        super().__init__(f"{path}: {problem}")
