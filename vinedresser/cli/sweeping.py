"""`vinedresser sweep`: run the search of a sweep file."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from vinedresser.cli.interrupts import leave, run_flow

__all__ = ["enqueue", "sweep"]


def enqueue(
    place: Annotated[
        str, typer.Argument(metavar="SWEEP", help="Folder of a sweep, such as runs/search.")
    ],
    values: Annotated[
        list[str], typer.Argument(metavar="NAME=VALUE...", help="Values of hyperparameters.")
    ],
) -> None:
    """Add a configuration to a sweep, also while it runs; it is tried next.

    The sampler proposes the hyperparameters that are not given.
    """
    from vinedresser.cli.options import check_directory
    from vinedresser.cli.views.console import say
    from vinedresser.objects import parse_location
    from vinedresser.tasks.sweeping.enqueueing import enqueue as add

    location = parse_location(place)
    check_directory(location)
    say(add(location, values))


def sweep(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A sweep.toml.")],
    store: Annotated[str | None, typer.Option(help="Override run.store of the file.")] = None,
    max_concurrent: Annotated[
        int | None, typer.Option(min=1, help="Maximum concurrent trials.")
    ] = None,
    *,
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume the sweep in the store.")
    ] = False,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Resume it, and try its failed trials again.")
    ] = False,
    join: Annotated[
        bool, typer.Option("--join", help="Run trials beside other processes of the sweep.")
    ] = False,
) -> None:
    """Search for the best configuration.

    Trials run in parallel. Rules stop broken trials; a pruner stops those that fall behind.
    """
    from vinedresser.cli.views.console import console, line_room, print_table, relative, say
    from vinedresser.cli.views.starting_display import starting
    from vinedresser.infra.catalog.stores import ensure_store
    from vinedresser.infra.services.prefect_environment import prepare_prefect
    from vinedresser.tasks.config.sweep_file import load_sweep
    from vinedresser.tasks.lifecycle.earlier_runs import adopt_living

    searched = load_sweep(file, store=store, max_concurrent=max_concurrent)
    searched.check_start(retry_failed=retry_failed, join=join)
    place = searched.experiment.store
    ensure_store(place)
    resume = resume or retry_failed
    if resume:
        # Before Prefect loads: a run without a flow keeps training for a minute only.
        adopt_living(place)
    shown = relative(place)
    planned = searched.planned
    trials = "trials" if planned is None else "1 trial" if planned == 1 else f"{planned} trials"
    console.print(
        f"{trials}, {searched.experiment.max_concurrent} at a time, in {shown}", soft_wrap=True
    )
    if searched.notice:
        say(searched.notice)
    with starting() as display:
        display.begin("starting Prefect and MLflow")
        prefect_serves = prepare_prefect(searched.state)
        from vinedresser.cli.views.sweep_progress import sweep_progress
        from vinedresser.cli.views.sweep_results import summary, trials_table
        from vinedresser.flows.sweep import run_search
        from vinedresser.flows.sweep import sweep as sweep_flow
        from vinedresser.infra.services.tracking import start_preparing

        tracked = searched.experiment
        start_preparing(tracked.tracking_uri, tracked.tracking_experiment, say)
        prefect_serves()
        display.begin("starting the first trials")
        how = {"resume": resume, "retry_failed": retry_failed, "join": join}
        given = {"path": tracked.path, "store": store, "max_concurrent": max_concurrent}
        with sweep_progress(display.end):
            work = partial(run_search, searched, **how)
            ended = run_flow(sweep_flow, work, given | how, place)
    swept = ended.result
    print_table(trials_table(swept, searched.settings, line_room()))
    for line in summary(swept, searched.settings):
        console.print(line, soft_wrap=True)
    if failed := swept.failed:
        retry = f"vinedresser sweep {file} --retry-failed"
        console.print(f"{failed} failed; once the cause is mended: {retry}", soft_wrap=True)
    for problem in filter(None, (swept.problem, *swept.problems)):
        console.print(f"vinedresser: {problem}", style="red")
    if searched.page.exists():
        told = f"report {relative(searched.page)}; compare the trials: vinedresser ui {shown}"
        console.print(told, soft_wrap=True)
    leave(1 if swept.problem or swept.problems else 0, ended)
