"""`vinedresser sweep`: run the search of a sweep file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from vinedresser.cli.interrupts import ending_flow, exit_code


def sweep(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A sweep.toml.")],
    store: Annotated[str | None, typer.Option(help="Override run.store of the file.")] = None,
    max_concurrent: Annotated[
        int | None, typer.Option(min=1, help="Maximum concurrent trials.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume the sweep in the store.")
    ] = False,
) -> None:
    """Search for the best configuration.

    Trials run in parallel. Rules stop broken trials; a pruner stops those that fall behind.
    """
    from vinedresser.cli.views.console import console, relative, say
    from vinedresser.cli.views.starting_display import starting
    from vinedresser.infra.prefect_environment import prepare_prefect
    from vinedresser.tasks.config.sweep_file import load_sweep
    from vinedresser.tasks.lifecycle.earlier_runs import adopt_living
    from vinedresser.tasks.stores import ensure_store

    searched = load_sweep(file, store=store, max_concurrent=max_concurrent)
    place = searched.experiment.store
    ensure_store(place)
    if resume:
        # Before Prefect loads: a run without a flow keeps training for a minute only.
        adopt_living(place)
    shown = relative(place)
    trials = "trials" if searched.settings.trials is None else f"{searched.settings.trials} trials"
    console.print(
        f"{trials}, {searched.experiment.max_concurrent} at a time, in {shown}", soft_wrap=True
    )
    if searched.experiment.notice:
        say(searched.experiment.notice)
    with starting() as display:
        display.begin("starting Prefect and MLflow")
        prefect_serves = prepare_prefect(searched.state)
        from vinedresser.cli.views.sweep_progress import sweep_progress
        from vinedresser.cli.views.sweep_results import summary, trials_table
        from vinedresser.flows.sweep import sweep as sweep_flow
        from vinedresser.infra.tracking import start_preparing

        tracked = searched.experiment
        start_preparing(tracked.tracking_uri, tracked.tracking_experiment)
        prefect_serves()
        display.begin("starting the first trials")
        with sweep_progress(display.end), ending_flow(place):
            state = sweep_flow(tracked.path, store, max_concurrent, resume, return_state=True)
    swept = state.result(raise_on_failure=False)
    if isinstance(swept, BaseException):
        raise swept
    room = console.width if console.is_terminal else None
    console.print(trials_table(swept, searched.settings, room))
    for line in summary(swept, searched.settings):
        console.print(line, soft_wrap=True)
    for problem in filter(None, (swept.problem, *swept.problems)):
        console.print(f"vinedresser: {problem}", style="red")
    if searched.page.exists():
        told = f"report {relative(searched.page)}; compare the trials: vinedresser ui {shown}"
        console.print(told, soft_wrap=True)
    sys.exit(exit_code(1 if swept.problem or swept.problems else 0))
