"""ElasticJobs in a YAML or JSON file.

from_file("job.yaml")        # the documents, each checked to be an ElasticJob with a name
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import yaml

from tidewater.cli import kubeyaml
from tidewater.cli.errors import UsageError
from tidewater.elasticjob import names
from tidewater.kube.cluster import Object


def from_file(path: str, namespace: str = "") -> list[Object]:
    """Return the jobs of a YAML or JSON file, or of standard input for `-`; `namespace` is where the flags put them.

    Raises:
        UsageError: it can't be read, or holds something else than ElasticJobs.
    """
    documents = [each for each in parsed(path) if each is not None]
    if not documents:
        raise UsageError(f"-f {path}: there is no ElasticJob in it")
    for number, document in enumerate(documents, 1):
        _check_kind(document, path, number)
        metadata = _metadata(document, path, number)
        if namespace and metadata.setdefault("namespace", namespace) != namespace:
            raise UsageError(
                f"--namespace {namespace} is not the namespace of {metadata['name']}, {metadata['namespace']}",
                "Leave out one of the two.",
            )
    return documents


def _check_kind(document: Any, path: str, number: int) -> None:
    """Raise UsageError if a document is no ElasticJob."""
    if not isinstance(document, dict) or document.get("kind") != names.KIND:
        kind = document.get("kind") if isinstance(document, dict) else type(document).__name__
        raise UsageError(
            f"-f {path}: document {number} is {kind}, not {names.KIND}", f"For others: kubectl apply -f {path}"
        )
    if document.get("apiVersion") != names.API_VERSION:
        raise UsageError(
            f"-f {path}: document {number} has apiVersion {document.get('apiVersion')}", f"Write {names.API_VERSION}."
        )
    try:
        json.dumps(document, allow_nan=False)
    except (TypeError, ValueError) as error:  # !!binary, .inf, a list that contains itself
        raise UsageError(f"-f {path}: document {number} has what JSON can't express: {error}") from None


def _metadata(document: Object, path: str, number: int) -> dict[str, Any]:
    """Return the metadata of a document, without a namespace that is null: to the API server that is none.

    Raises:
        UsageError: it is no mapping, or has no name.
    """
    metadata = document.get("metadata")
    if metadata is not None and not isinstance(metadata, dict):
        raise UsageError(f"-f {path}: metadata of document {number} is {type(metadata).__name__}, not a mapping")
    if not metadata or not metadata.get("name"):
        raise UsageError(f"-f {path}: document {number} has no metadata.name")
    if metadata.get("namespace", "") is None:
        del metadata["namespace"]
    return metadata


def parsed(path: str) -> list[Any]:
    """Return the YAML documents of a file.

    Raises:
        UsageError: it can't be read.
    """
    try:
        return kubeyaml.documents(sys.stdin.read() if path == "-" else Path(path).read_text())
    except OSError as error:
        raise UsageError(f"-f {path} can't be read: {error.strerror}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise UsageError(f"-f {path} is not YAML: {error}") from None
