"""`tidewater install`: the manifests of the CRD and of the controller, for `kubectl apply -f -`.

It prints the same objects that the Pulumi program makes, and needs neither a cluster nor a kubeconfig.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tidewater.cli.errors import UsageError
from tidewater.cli.options import command
from tidewater.cli.show import yaml_of
from tidewater.elasticjob.install import Installation, Program, definition, manifests
from tidewater.elasticjob.install.pods import IMAGE, NAMESPACE


def register(app: typer.Typer) -> None:
    """Add the command to the root."""
    command(app, "install")(install)


def install(
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", help="Namespace of the controller; it works for all namespaces.")
    ] = NAMESPACE,
    image: Annotated[
        str,
        typer.Option(
            help="Image with Python 3.11 or later; if it lacks the controller's packages, they are installed at start.",
            show_default=False,
        ),
    ] = "",
    replicas: Annotated[int, typer.Option(min=1, help="Copies of the controller; one leads, the others wait.")] = 2,
    crd_only: Annotated[bool, typer.Option("--crd-only", help="Print the CRD and nothing else.")] = False,
) -> None:
    """Print CRD, rights and Deployment of the controller: tidewater install | kubectl apply -f -"""
    if crd_only:
        typer.echo(rendered([definition()]))
        return
    try:
        program = Program.read()
    except FileNotFoundError as error:
        raise UsageError(f"the controller can't be packed: {error}", "Install tidewater from its repository.") from None
    wanted = Installation(program=program, namespace=namespace, image=image or IMAGE, replicas=replicas)
    typer.echo(rendered(manifests(wanted)))


def rendered(objects: list[dict[str, Any]]) -> str:
    """Return objects as one stream of YAML documents, in their order, without the last end of line."""
    return "\n---\n".join(yaml_of(each) for each in objects)
