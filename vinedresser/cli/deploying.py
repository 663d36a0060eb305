"""`vinedresser deploy`: create a Prefect deployment of a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vinedresser.errors import ConfigError


def deploy(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="An experiment.toml, sweep.toml, prune.toml, monitor.toml or retention.toml.",
        ),
    ],
    *,
    cron: Annotated[
        str | None, typer.Option(help="Schedule, such as '0 2 * * *' (default: run on request).")
    ] = None,
    timezone: Annotated[
        str | None, typer.Option(help="Time zone of --cron, such as Europe/Vienna (default: UTC).")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the deployment (default: the name in the file).")
    ] = None,
    pool: Annotated[
        str | None, typer.Option(help="Prefect work pool (default: the pool of `vinedresser up`).")
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace a deployment of another file by this name.")
    ] = False,
    paused: Annotated[bool, typer.Option("--paused", help="Create the schedule paused.")] = False,
    catch_up: Annotated[
        str | None,
        typer.Option(
            help="Missed runs that `vinedresser up` has started: last, all, none (default: last)."
        ),
    ] = None,
) -> None:
    """Let Prefect run a file, on a schedule or on request.

    A worker must be running: `vinedresser up` starts one on this machine.
    """
    from vinedresser.infra.services.prefect_environment import find_prefect

    if cron is None and (timezone is not None or paused or catch_up is not None):
        raise ConfigError("--timezone, --paused, --catch-up: require --cron")
    find_prefect()
    from vinedresser.cli.views.console import console
    from vinedresser.infra.services.scheduling import Schedule
    from vinedresser.tasks.config.deployment import deploy as deploy_file

    schedule = None
    if cron is not None:
        schedule = Schedule(cron, timezone or "UTC", active=not paused, catch_up=catch_up or "last")
    made = deploy_file(file, schedule=schedule, name=name, pool=pool, replace=replace)
    when = f"at {cron}, {timezone or 'UTC'}" if cron else "on request"
    message = f"deployed {made.name} on the work pool {made.pool}, {when}"
    console.print(f"{message}{' (paused)' if paused else ''}", soft_wrap=True)
    if made.first is not None:
        console.print(f"first run {made.first:%Y-%m-%d %H:%M %Z}", soft_wrap=True)
    if catch_up is not None and not made.catches_up:
        here = "only `vinedresser up` applies --catch-up, on its own server and work pool"
        console.print(f"{here}; elsewhere Prefect decides about missed runs", soft_wrap=True)
    if not made.has_worker:
        start = f"`vinedresser up`, or `prefect worker start --pool {made.pool}`"
        console.print(f"no worker polls this pool yet; start one: {start}", soft_wrap=True)
    console.print(
        f"next: prefect deployment run {made.name}   server {made.server}", soft_wrap=True
    )
