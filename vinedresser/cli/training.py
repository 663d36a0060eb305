"""`vinedresser train`: the trainings of an experiment file, as a flow."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from vinedresser.cli.interrupts import interrupts_stop
from vinedresser.cli.views.nothing_seen import print_nothing_seen
from vinedresser.cli.views.remedies import print_remedied
from vinedresser.errors import ConfigError

__all__ = ["train"]


def train(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An experiment.toml.")],
    store: Annotated[
        str | None, typer.Option(help="Takes the place of run.store in the file.")
    ] = None,
    max_concurrent: Annotated[
        int | None, typer.Option(min=1, help="Trainings at the same time.")
    ] = None,
    remedy: Annotated[
        bool | None,
        typer.Option(
            "--remedy/--no-remedy",
            help="Begin a run that a rule stopped again, with the correction that it proposes.",
        ),
    ] = None,
    attempts: Annotated[
        int | None,
        typer.Option(min=1, help="How often at the most, with --remedy; 2 if nobody says."),
    ] = None,
) -> None:
    """Run the trainings of an experiment file.

    They run in parallel, are judged while they train, and are stopped when they go wrong.
    """
    from vinedresser.infra.prefect_environment import prepare_prefect
    from vinedresser.tasks.config.experiment import load_experiment
    from vinedresser.tasks.stores import ensure_store, local_state

    experiment = load_experiment(file, store=store, max_concurrent=max_concurrent)
    times = _times(experiment.remedy.times, remedy, attempts)
    ensure_store(experiment.store)
    state = local_state(experiment.store)
    prepare_prefect(state)
    from vinedresser.cli.views.terminal import console, progress, relative, results_table
    from vinedresser.flows.train import train as train_flow

    count = len(experiment.specs)
    together = min(experiment.max_concurrent, count)
    trainings = "1 training" if count == 1 else f"{count} trainings, {together} at a time"
    shown = relative(experiment.store)
    console.print(f"{trainings}, in {shown}", soft_wrap=True)
    if state != experiment.store:
        console.print(f"MLflow {experiment.tracking_uri}, Prefect {state}", soft_wrap=True)
    with progress(experiment.store), interrupts_stop(experiment.store):
        trained = train_flow(experiment.path, experiment.store, max_concurrent, times)
    console.print(results_table(trained.results))
    for entry in trained.remedied:
        print_remedied(entry, console)
    for problem in trained.problems:
        console.print(f"vinedresser: {problem}", style="red", markup=False)
    if experiment.run.attach:
        for run in trained.results:
            if run.status.state == "finished" and not run.seen:
                print_nothing_seen(console, run.name)
    console.print(f"reports in {shown}/*/report.html; compare the runs: vinedresser ui {shown}")
    failed = any(run.status.state not in ("finished", "stopped") for run in trained.results)
    sys.exit(1 if failed or trained.problems else 0)


def _times(said: int, remedy: bool | None, attempts: int | None) -> int:
    """Return how often a run is begun again at the most.

    Args:
        said: by the experiment file.
        remedy: whether to; None: as the file says.
        attempts: how often; None: as the file says.

    Raises:
        ConfigError: both no remedy and attempts.
    """
    from vinedresser.tasks.config.remedy_settings import RemedySettings

    if remedy is False:
        if attempts is not None:
            raise ConfigError("--attempts: goes with --remedy, not with --no-remedy")
        return 0
    if attempts is not None:
        return attempts
    return (said or RemedySettings().times) if remedy else said
