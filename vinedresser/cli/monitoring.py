"""`vinedresser monitor`: watch a served model."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from vinedresser.cli.interrupts import ending_flow, exit_code

__all__ = ["monitor"]


def monitor(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A monitor.toml.")],
    *,
    rearm: Annotated[
        bool, typer.Option("--rearm", help="Begin again, with a new baseline and budget.")
    ] = False,
) -> None:
    """Judge the requests of a served model that have arrived since the last time.

    Compares each window of requests with a baseline. On an alarm, saliency maps of its requests are
    computed and shown in MLflow. Exits with 1 while there is an alarm.
    """
    from vinedresser.cli.views.console import console, relative, say
    from vinedresser.explain.formatting import count
    from vinedresser.infra.prefect_environment import prepare_prefect
    from vinedresser.tasks.config.monitor_file import load_monitor
    from vinedresser.tasks.stores import ensure_store

    checked = load_monitor(file)
    ensure_store(checked.state)
    say("starting Prefect and MLflow ...")
    prefect_serves = prepare_prefect(checked.state)
    from vinedresser.flows.monitor import monitor as monitor_flow
    from vinedresser.infra.tracking import start_preparing

    start_preparing(checked.tracking_uri, checked.tracking_experiment)
    prefect_serves()
    with ending_flow(checked.state):
        state = monitor_flow(checked.path, rearm, return_state=True)
    found = state.result(raise_on_failure=False)
    if isinstance(found, BaseException):
        raise found
    judged = count(len(found.windows), "window")
    verdict = found.text or "no drift"
    console.print(f"{checked.name}: {judged} judged; {verdict}", soft_wrap=True)
    for problem in found.problems:
        console.print(f"vinedresser: {problem}", style="red", soft_wrap=True)
    page = found.folder / "monitor.html"
    if page.exists():
        console.print(f"report {relative(page)}", soft_wrap=True)
    sys.exit(exit_code(1 if found.alert or found.problems else 0))
