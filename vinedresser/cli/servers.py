"""`vinedresser ui`, `up` and `down`: local servers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vinedresser.cli.options import DEFAULT_STORE, StoreArgument
from vinedresser.errors import ConfigError

__all__ = ["down", "ui", "up"]


def ui(
    store: StoreArgument = str(DEFAULT_STORE),
    port: Annotated[int | None, typer.Option(help="A free one if not given.")] = None,
) -> None:
    """Open MLflow's pages on the runs of a store."""
    from vinedresser.infra.guard import guard_descendants
    from vinedresser.infra.servers import mlflow_page, start_mlflow_ui, stop_server
    from vinedresser.tasks.store import as_store, tracking
    from vinedresser.terminal import console

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
    s3: Annotated[bool, typer.Option("--s3", help="An S3 server, SeaweedFS, on loopback.")] = False,
    data: Annotated[
        Path | None,
        typer.Option(help="Folder of its files; one below ~/.local/share if not given."),
    ] = None,
    port: Annotated[int | None, typer.Option(help="8333, or a free one, if not given.")] = None,
    bucket: Annotated[str, typer.Option(help="A bucket that it is to have.")] = "vinedresser",
) -> None:
    """Start the local servers, which stay until `vinedresser down`.

    What programs need to find them is printed for the shell: eval "$(vinedresser up --s3)".
    """
    from vinedresser.terminal import error_console

    if not s3:
        raise ConfigError("up: say which server: --s3 starts an S3 server, SeaweedFS, on loopback")
    from vinedresser.infra.servers import bring_up

    server = bring_up(data, port=port, bucket=bucket)
    for name, value in server.environment().items():
        typer.echo(f"export {name}={value}")
    said = f"S3 at {server.url}, for stores like s3://{bucket}/runs, in {server.data}"
    error_console.print(f"{said}   (vinedresser down stops it)", soft_wrap=True)


def down() -> None:
    """Stop the local servers that `vinedresser up` started; what they have stored stays."""
    from vinedresser.infra.servers import take_down
    from vinedresser.terminal import console

    server = take_down()
    said = f"stopped the S3 server at {server.url}" if server else "no server runs"
    console.print(said, soft_wrap=True)
