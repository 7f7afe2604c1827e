"""The command about data: any data as RecordIO, written by this process or by a pod that has the volume."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated

import typer

from elasticdl.client import writing
from elasticdl.client.commands import Tools
from elasticdl.client.flags import values
from elasticdl.client.flags.mistakes import Mistake, WrongCommand
from elasticdl.client.job import data_pod
from elasticdl.data.writing import convert
from elasticdl.data.writing.sources import NAMED
from tidewater.cli.options import command
from tidewater.cli.session import Session

app = typer.Typer(no_args_is_help=True, help="Data as RecordIO.")

_POD = "With --in_pod"


@dataclass(frozen=True)
class How:
    """The flags about what is written."""

    records_per_shard: Annotated[
        int, typer.Option("--records_per_shard", "--records-per-shard", min=1, help="Records in a file.")
    ] = convert.Options.records_per_shard
    test_share: Annotated[
        float | None,
        typer.Option("--test_share", "--test-share", help="Share of the records for test/, from 0 up to 1."),
    ] = None
    data_reader_params: Annotated[
        str, typer.Option("--data_reader_params", "--data-reader-params", help="Of data at an address.")
    ] = ""
    records: Annotated[int | None, typer.Option(min=1, help="Of a generated dataset: how many.")] = None


@dataclass(frozen=True)
class Where:
    """The flags about who writes."""

    in_pod: Annotated[
        bool,
        typer.Option("--in_pod", "--in-pod", help="Write in a pod of the stack, which has its file system at /data."),
    ] = False
    volume: Annotated[str, typer.Option(help="Volumes as of `elasticdl train`.", rich_help_panel=_POD)] = ""
    image_name: Annotated[
        str, typer.Option("--image_name", "--image-name", help="Default: the stack's.", rich_help_panel=_POD)
    ] = ""


@command(app, "write")
def write(
    source: Annotated[str, typer.Argument(help=f"{', '.join(NAMED)}, or the address of data.")],
    out: Annotated[str, typer.Argument(help="An empty folder, or s3://BUCKET/PREFIX.")],
    how: How,
    where: Where,
    session: Session,
) -> None:
    """Write data as RecordIO, for --training_data and --validation_data."""
    asked = asdict(how)
    options = {name: asked.pop(name) for name in ("records_per_shard", "test_share")}
    options["asked"] = asked
    if not where.in_pod:
        for line in writing.written(source, out, options):
            typer.echo(line)
        return
    try:
        volumes = values.volumes(where.volume) if where.volume else None
    except values.WrongValue as wrong:
        raise WrongCommand([Mistake(f"--volume: {wrong.message}", wrong.remedy)]) from None
    steps = session.tools.steps if isinstance(session.tools, Tools) else Tools().steps
    task = data_pod.Task(source, out, options, volumes, where.image_name)
    data_pod.run(task, session.cluster, steps)
