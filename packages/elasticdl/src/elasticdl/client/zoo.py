"""The commands about the model zoo: a folder with models, and an image of it where there is Docker."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elasticdl.zoo import project

_INDEX = typer.Option("--extra_pypi_index", "--extra-pypi-index", help="Package index in addition to the default one.")

app = typer.Typer(no_args_is_help=True, help="The model zoo: a folder with models, and an image of it.")


@app.command("init")
def init(
    path: Annotated[Path, typer.Argument(help="The zoo's folder.")] = Path(),
    model_zoo: Annotated[
        Path | None, typer.Option("--model_zoo", "--model-zoo", help="The same, as ElasticDL has it.")
    ] = None,
    base_image: Annotated[
        str, typer.Option("--base_image", "--base-image", help="Image that the zoo's is made from.")
    ] = project.BASE_IMAGE,
    extra_pypi_index: Annotated[str, _INDEX] = "",
) -> None:
    """Write a Dockerfile, and two working examples if the folder has no modules yet."""
    for file in project.init((model_zoo or path).expanduser(), project.InitOptions(base_image, extra_pypi_index)):
        typer.echo(file)


@app.command("build")
def build(
    path: Annotated[Path, typer.Argument(help="The zoo's folder, with the Dockerfile of `zoo init`.")],
    image: Annotated[str, typer.Option(help="Name of the image.")],
) -> None:
    """Build the image of the zoo with Docker."""
    project.build(path, image)


@app.command("push")
def push(image: Annotated[str, typer.Argument(help="Name of the image.")]) -> None:
    """Push the image with Docker."""
    project.push(image)
