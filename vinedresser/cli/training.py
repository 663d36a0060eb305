"""`vinedresser train`: run the trainings of an experiment file."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from vinedresser.cli.interrupts import leave, run_flow
from vinedresser.errors import ConfigError
from vinedresser.masking import masked_text


def train(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An experiment.toml.")],
    store: Annotated[str | None, typer.Option(help="Override run.store of the file.")] = None,
    max_concurrent: Annotated[
        int | None, typer.Option(min=1, help="Maximum concurrent trainings.")
    ] = None,
    remedy: Annotated[
        bool | None,
        typer.Option(
            "--remedy/--no-remedy",
            help="Retry a stopped run with the correction that its rule proposes.",
        ),
    ] = None,
    attempts: Annotated[
        int | None, typer.Option(min=1, help="Maximum retries with --remedy (default: 2).")
    ] = None,
) -> None:
    """Run the trainings of an experiment file.

    Trainings run in parallel. Rules judge them while they train and stop the broken ones.
    """
    from vinedresser.cli.views.console import console, line_room, print_table, relative, say
    from vinedresser.infra.catalog.stores import ensure_store, local_state
    from vinedresser.infra.services.prefect_environment import prepare_prefect
    from vinedresser.tasks.config.experiment import load_experiment
    from vinedresser.tasks.config.remedy_settings import RemedySettings

    if remedy is False and attempts is not None:
        raise ConfigError("--attempts: cannot be combined with --no-remedy")
    times = 0 if remedy is False else attempts
    experiment = load_experiment(file, store=store, max_concurrent=max_concurrent, remedy=times)
    experiment.refuse_missing()
    if remedy and not experiment.remedy.times:
        enabled = replace(experiment.remedy, times=RemedySettings().times)
        experiment = replace(experiment, remedy=enabled)
    ensure_store(experiment.store)
    state = local_state(experiment.store)
    count = len(experiment.specs)
    together = min(experiment.max_concurrent, count)
    trainings = "1 training" if count == 1 else f"{count} trainings, {together} at a time"
    shown = relative(experiment.store)
    console.print(f"{trainings}, in {shown}", soft_wrap=True)
    if state != experiment.store:
        console.print(f"MLflow {masked_text(experiment.tracking_uri)}", soft_wrap=True)
    if experiment.notice:
        say(experiment.notice)
    say("starting Prefect and MLflow ...")
    prefect_serves = prepare_prefect(state)
    from vinedresser.cli.views.progress import progress
    from vinedresser.cli.views.results import print_no_training, print_remedied, results_table
    from vinedresser.flows.train import run_trainings
    from vinedresser.flows.train import train as train_flow
    from vinedresser.infra.services.tracking import start_preparing

    start_preparing(experiment.tracking_uri, experiment.tracking_experiment, say)
    with progress(experiment.store):
        prefect_serves()
        parameters = {
            "path": experiment.path,
            "store": experiment.store,
            "max_concurrent": max_concurrent,
            "remedy": experiment.remedy.times,
        }
        work = partial(run_trainings, experiment)
        ended = run_flow(train_flow, work, parameters, experiment.store)
    trained = ended.result
    print_table(results_table(trained.results, line_room()))
    for entry in trained.remedied:
        print_remedied(entry, console)
    for problem in trained.problems:
        console.print(f"vinedresser: {problem}", style="red")
    if experiment.run.attach:
        for run in trained.results:
            if run.status.state == "finished" and not run.seen:
                print_no_training(console, run.name)
    console.print(f"reports in {shown}/*/report.html; compare the runs: vinedresser ui {shown}")
    failed = any(run.status.state not in ("finished", "stopped") for run in trained.lasting)
    leave(1 if failed or trained.problems else 0, ended)
