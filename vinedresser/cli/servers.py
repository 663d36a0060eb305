"""`vinedresser ui`, `up` and `down`: start and stop local servers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from vinedresser.cli.doctor import print_troubles
from vinedresser.cli.options import DEFAULT_STORE, StoreArgument
from vinedresser.errors import TrackingError
from vinedresser.objects import parse_location

__all__ = ["down", "ui", "up"]


def ui(
    store: StoreArgument = str(DEFAULT_STORE),
    port: Annotated[int | None, typer.Option(help="Port (default: a free one).")] = None,
) -> None:
    """Serve the MLflow UI for the runs of a store."""
    from vinedresser.cli.views.console import console, error_console
    from vinedresser.infra.catalog.known_tracking import tracking
    from vinedresser.infra.guard import guard_descendants
    from vinedresser.infra.services.servers import mlflow_page, start_mlflow_ui, stop_server
    from vinedresser.infra.services.tracking import save_verdict_view

    record = tracking(parse_location(store))
    guard_descendants()
    try:
        view = save_verdict_view(record.uri, record.experiment_id)
    except TrackingError as error:
        # The pages can be read all the same, for example of a database that is write-protected.
        error_console.print(f"{error}; MLflow opens without the table of verdicts", soft_wrap=True)
        view = ""
    server = start_mlflow_ui(record.uri, port=port)
    page = mlflow_page(server.url, record.experiment_id, view=view)
    console.print(f"MLflow at {page}   (Ctrl-C to stop)", soft_wrap=True)
    try:
        server.process.wait()
    except KeyboardInterrupt:
        stop_server(server)


def up(
    *,
    s3: Annotated[bool, typer.Option("--s3", help="Start an S3 server (SeaweedFS).")] = False,
    prefect: Annotated[
        bool, typer.Option("--prefect", help="Start a Prefect server and a worker (default).")
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Data directory, of S3 if both are started (default: in ~/.local/share)."
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            help="Port, of S3 if both are started (default: 8333 S3, 4200 Prefect, or free)."
        ),
    ] = None,
    bucket: Annotated[str, typer.Option(help="S3 bucket to create.")] = "vinedresser",
    limit: Annotated[
        int, typer.Option(min=1, help="Maximum concurrent flow runs of the worker.")
    ] = 1,
) -> None:
    """Start local servers.

    They listen on loopback and run until `vinedresser down`. Prints the environment variables that
    clients need: eval "$(vinedresser up)".
    """
    from vinedresser.cli.views.console import error_console, say

    say_beside = partial(say, to=error_console)
    found: dict[str, str] = {}
    if s3:
        from vinedresser.infra.services.servers import bring_up

        server = bring_up(data, port=port, bucket=bucket, say=say_beside)
        found |= server.environment()
        message = f"S3 at {server.url}, for stores like s3://{bucket}/runs, in {server.data}"
        error_console.print(f"{message}   (vinedresser down stops it)", soft_wrap=True)
    if prefect or not s3:
        from vinedresser.infra.services.missed_runs import catch_up
        from vinedresser.infra.services.servers import bring_up_prefect

        home, number = (None, None) if s3 else (data, port)
        standing = bring_up_prefect(
            home,
            port=number,
            limit=limit,
            environment=found,
            say=say_beside,
            before_work=partial(catch_up, say=say_beside),
        )
        found |= standing.environment()
        message = f"Prefect at {standing.url}, with a worker, in {standing.home}"
        error_console.print(f"{message}   (vinedresser down stops it)", soft_wrap=True)
        error_console.print("log in to its UI with $PREFECT_API_AUTH_STRING", soft_wrap=True)
    for name, value in found.items():
        typer.echo(f"export {name}={value}")
    if prefect or not s3:
        from vinedresser.infra.services.scheduling import check_scheduler

        check_scheduler(standing)
    _settle_left(say_beside)
    print_troubles(error_console)


def _settle_left(say: Callable[[str], object]) -> None:
    """Settle what a crash has left in the stores on this machine that the user's flows used."""
    from vinedresser.infra.catalog.flow_records import dead_flows
    from vinedresser.infra.catalog.left_stores import left_stores
    from vinedresser.infra.services.prefect_environment import find_prefect
    from vinedresser.infra.services.servers import standing_prefect
    from vinedresser.tasks.reconcile.reconcile import reconcile

    faults: list[str] = []
    for store in left_stores(faults):
        if not isinstance(store, Path):
            say(f"a crash has left runs in {store}: vinedresser reconcile {store}")
            continue
        prefect = standing_prefect() is not None and any(
            flow.server for flow in dead_flows(store, faults)
        )
        if prefect:
            from prefect.context import refresh_global_settings_context

            find_prefect()
            # Prefect, which reads its settings once, was imported to look at the scheduler.
            refresh_global_settings_context()
        for result in reconcile(store, prefect=prefect):
            done = "not settled" if result.failed else "settled"
            say(f"{done} after a crash in {store}: {result.what}   {result.done}")
    for fault in faults:
        say(fault)


def down() -> None:
    """Stop the local servers and keep their data.

    Flow runs of the Prefect worker are cancelled: their trainings save a checkpoint and exit.
    """
    from vinedresser.cli.views.console import console
    from vinedresser.infra.services.servers import take_down, take_down_prefect

    # The worker first: its flow runs may still save to the S3 server.
    prefect, server = take_down_prefect(), take_down()
    if prefect:
        console.print(f"stopped Prefect at {prefect.url}", soft_wrap=True)
    if server:
        console.print(f"stopped the S3 server at {server.url}", soft_wrap=True)
    if not prefect and not server:
        console.print("no servers are running")
