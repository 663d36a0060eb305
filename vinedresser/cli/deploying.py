"""`vinedresser deploy`: an experiment or a sweep on a schedule."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vinedresser.errors import ConfigError

__all__ = ["deploy"]


def deploy(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="An experiment.toml or a sweep.toml.")
    ],
    *,
    cron: Annotated[
        str | None,
        typer.Option(help="When, such as '0 2 * * *'; only when asked for if not given."),
    ] = None,
    timezone: Annotated[
        str | None, typer.Option(help="Of --cron, such as Europe/Vienna; UTC if not given.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Of the deployment; run.name of the file if not given.")
    ] = None,
    pool: Annotated[
        str | None,
        typer.Option(help="Prefect's work pool; that of `vinedresser up` if not given."),
    ] = None,
    paused: Annotated[
        bool, typer.Option("--paused", help="Do not begin with the schedule yet.")
    ] = False,
) -> None:
    """Have Prefect run a file, on a schedule or when asked for.

    A worker runs it: `vinedresser up` starts one on this machine.
    """
    from vinedresser.infra.prefect_environment import find_prefect

    if cron is None and (timezone is not None or paused):
        raise ConfigError("--timezone, --paused: go with --cron")
    find_prefect()
    from vinedresser.cli.views.terminal import console
    from vinedresser.infra.deployment import Schedule
    from vinedresser.tasks.config.deployment import deploy as deploy_file

    schedule = Schedule(cron, timezone or "UTC", active=not paused) if cron is not None else None
    made = deploy_file(file, schedule=schedule, name=name, pool=pool)
    when = f"at {cron}, {timezone or 'UTC'}" if cron else "when asked for"
    said = f"deployed {made.name} on the work pool {made.pool}, {when}"
    console.print(f"{said}{' (paused)' if paused else ''}", soft_wrap=True, markup=False)
    console.print(f"now: prefect deployment run {made.name}   server {made.server}", soft_wrap=True)
