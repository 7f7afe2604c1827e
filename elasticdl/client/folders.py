"""The commands about folders: the model zoo, with an image of it where there is Docker, and data as RecordIO."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from cli.options import command
from elasticdl.data.writing import convert
from elasticdl.data.writing.sources import NAMED, Asked
from elasticdl.zoo import project

_INDEX = typer.Option("--extra_pypi_index", "--extra-pypi-index", help="Package index in addition to the default one.")

zoo = typer.Typer(no_args_is_help=True, help="The model zoo: a folder with models, and an image of it.")
data = typer.Typer(no_args_is_help=True, help="Data as RecordIO.")


@zoo.command("init")
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
    for file in project.init(model_zoo or path, project.InitOptions(base_image, extra_pypi_index)):
        typer.echo(file)


@zoo.command("build")
def build(
    path: Annotated[Path, typer.Argument(help="The zoo's folder, with the Dockerfile of `zoo init`.")],
    image: Annotated[str, typer.Option(help="Name of the image.")],
) -> None:
    """Build the image of the zoo with Docker."""
    project.build(path, image)


@zoo.command("push")
def push(image: Annotated[str, typer.Argument(help="Name of the image.")]) -> None:
    """Push the image with Docker."""
    project.push(image)


@dataclass(frozen=True)
class How:
    """The flags of `data write`."""

    records_per_shard: Annotated[
        int, typer.Option("--records_per_shard", "--records-per-shard", min=1, help="Records in a file.")
    ] = convert.Options.records_per_shard
    compressor: Annotated[str, typer.Option(help="none, snappy or gzip.")] = convert.Options.compressor
    test_share: Annotated[
        float | None,
        typer.Option("--test_share", "--test-share", help="Share of the records for test/, from 0 up to 1."),
    ] = None
    data_reader_params: Annotated[
        str, typer.Option("--data_reader_params", "--data-reader-params", help="Of data at an address.")
    ] = ""
    records: Annotated[int | None, typer.Option(min=1, help="Of a generated dataset: how many.")] = None
    seed: Annotated[int, typer.Option(help="Of a generated dataset.")] = 0


@command(data, "write")
def write(
    source: Annotated[str, typer.Argument(help=f"{', '.join(NAMED)}, or the address of data.")],
    out: Annotated[str, typer.Argument(help="An empty folder, or s3://BUCKET/PREFIX.")],
    how: How,
) -> None:
    """Write data as RecordIO, for --training_data and --validation_data."""
    options = convert.Options(
        records_per_shard=how.records_per_shard,
        compressor=how.compressor,
        test_share=how.test_share,
        asked=Asked(how.data_reader_params, how.records, how.seed),
    )
    for part in convert.write(source, out, options):
        typer.echo(f"{part.address}: {part.records} records in {part.files} files, {part.bytes} bytes")
