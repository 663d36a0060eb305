"""`vinedresser ui`, `up` and `down`: local servers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vinedresser.cli.options import DEFAULT_STORE, StoreArgument

__all__ = ["down", "ui", "up"]


def ui(
    store: StoreArgument = str(DEFAULT_STORE),
    port: Annotated[int | None, typer.Option(help="A free one if not given.")] = None,
) -> None:
    """Open MLflow's pages on the runs of a store."""
    from vinedresser.cli.views.terminal import console
    from vinedresser.infra.guard import guard_descendants
    from vinedresser.infra.servers import mlflow_page, start_mlflow_ui, stop_server
    from vinedresser.tasks.stores import as_store, tracking

    record = tracking(as_store(store))
    guard_descendants()
    server = start_mlflow_ui(record.uri, port=port)
    page = mlflow_page(server.url, record.experiment_id)
    console.print(f"MLflow at {page}   (Ctrl-C ends it)", soft_wrap=True)
    try:
        server.process.wait()
    except KeyboardInterrupt:
        stop_server(server)


def up(
    *,
    s3: Annotated[bool, typer.Option("--s3", help="An S3 server, SeaweedFS.")] = False,
    prefect: Annotated[
        bool,
        typer.Option("--prefect", help="Prefect's server and a worker; also where none is named."),
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Folder of its files, of S3 where both are; one below ~/.local/share if not given."
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            help="Of S3 where both are; 8333, and 4200 for Prefect, or a free one, if not given."
        ),
    ] = None,
    bucket: Annotated[str, typer.Option(help="A bucket that S3 is to have.")] = "vinedresser",
    limit: Annotated[
        int, typer.Option(min=1, help="Flow runs that Prefect's worker has at the same time.")
    ] = 1,
) -> None:
    """Start the local servers, which stay until `vinedresser down`; on loopback.

    What programs need to find them is printed for the shell: eval "$(vinedresser up)".
    """
    from vinedresser.cli.views.terminal import error_console

    found: dict[str, str] = {}
    if s3:
        from vinedresser.infra.servers import bring_up

        server = bring_up(data, port=port, bucket=bucket)
        found |= server.environment()
        said = f"S3 at {server.url}, for stores like s3://{bucket}/runs, in {server.data}"
        error_console.print(f"{said}   (vinedresser down stops it)", soft_wrap=True)
    if prefect or not s3:
        from vinedresser.infra.servers import bring_up_prefect

        home, number = (None, None) if s3 else (data, port)
        standing = bring_up_prefect(home, port=number, limit=limit, environment=found)
        found |= standing.environment()
        said = f"Prefect at {standing.url}, with a worker, in {standing.home}"
        error_console.print(f"{said}   (vinedresser down stops it)", soft_wrap=True)
        error_console.print("its pages ask for $PREFECT_API_AUTH_STRING", soft_wrap=True)
    for name, value in found.items():
        typer.echo(f"export {name}={value}")


def down() -> None:
    """Stop the local servers that `vinedresser up` started; what they have stored stays.

    Flow runs of Prefect's worker are cancelled: their trainings save a checkpoint and end.
    """
    from vinedresser.cli.views.terminal import console
    from vinedresser.infra.servers import take_down, take_down_prefect

    # First the worker: what its flow runs save may belong on the S3 server.
    prefect, server = take_down_prefect(), take_down()
    if prefect:
        console.print(f"stopped Prefect at {prefect.url}", soft_wrap=True)
    if server:
        console.print(f"stopped the S3 server at {server.url}", soft_wrap=True)
    if not prefect and not server:
        console.print("no server runs")
