"""`vinedresser prune`: run the pruning of a prune file."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vinedresser.cli.interrupts import leave, run_flow

if TYPE_CHECKING:
    from vinedresser.tasks.config.prune_file import Pruning

# 3 is that of a run that a rule has stopped, and 4 of a monitor that cannot tell.
_MISSED = 5


def prune(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A prune.toml.")],
    *,
    store: Annotated[str | None, typer.Option(help="Override run.store of the file.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume the pruning in the store.")
    ] = False,
    scan: Annotated[
        bool,
        typer.Option("--scan", help="Only show what pruning each group alone costs, and exit."),
    ] = False,
    branch: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="round-N",
            help="Begin with a round of the pruning of this name, as NAME-from-N.",
        ),
    ] = None,
) -> None:
    """Remove filters from a trained model, round by round.

    Each round removes filters, proves that nothing else has changed, and fine-tunes the model
    under the rules. The smallest model within the limits is the result. The exit code is 5 if it
    does not reach the targets of the file.
    """
    from vinedresser.cli.views.console import console, relative, say
    from vinedresser.explain.formatting import count
    from vinedresser.infra.catalog.stores import ensure_store
    from vinedresser.infra.services.prefect_environment import prepare_prefect
    from vinedresser.tasks.config.prune_file import load_pruning

    pruning = load_pruning(file, store=store, branch=branch)
    pruning.experiment.refuse_missing()
    place = pruning.experiment.store
    ensure_store(place)
    if scan:
        _show_sensitivity(pruning)
        return
    shown = relative(place)
    rounds = count(pruning.table.rounds, "round")
    console.print(f"at most {rounds}, in {shown}", soft_wrap=True)
    if pruning.experiment.notice:
        say(pruning.experiment.notice)
    say("starting Prefect and MLflow ...")
    prefect_serves = prepare_prefect(pruning.state)
    from vinedresser.cli.views.pruning_views import pruning_summary, round_progress, rounds_table
    from vinedresser.flows.prune import prune as prune_flow
    from vinedresser.flows.prune import run_pruning
    from vinedresser.infra.services.tracking import start_preparing

    prepared = pruning.experiment
    start_preparing(prepared.tracking_uri, prepared.tracking_experiment, say)
    prefect_serves()
    parameters = {"path": prepared.path, "store": store, "resume": resume, "branch": branch}
    with round_progress():
        work = partial(run_pruning, pruning, resume=resume)
        ended = run_flow(prune_flow, work, parameters, place)
    pruned = ended.result
    if pruned.rounds:
        console.print(rounds_table(pruned))
    for line in pruning_summary(pruned):
        console.print(line, soft_wrap=True)
    for problem in filter(None, (pruned.problem, *pruned.problems)):
        console.print(f"vinedresser: {problem}", style="red", soft_wrap=True)
    if pruned.chosen is not None:
        folder = relative(pruning.state)
        console.print(f'load it: vinedresser.pruning.load("{folder}", build)', soft_wrap=True)
    if pruning.page.exists():
        told = f"report {relative(pruning.page)}; compare the rounds: vinedresser ui {shown}"
        console.print(told, soft_wrap=True)
    leave(1 if pruned.problem or pruned.problems else _MISSED if pruned.missed else 0, ended)


def _show_sensitivity(pruning: Pruning) -> None:
    """Print the figures of a scan, and amounts by group that follow from them."""
    from vinedresser.cli.views.console import console
    from vinedresser.cli.views.pruning_views import sensitivity_lines, sensitivity_table
    from vinedresser.tasks.pruning.scan import scan_groups

    scanned = scan_groups(pruning)
    console.print(sensitivity_table(scanned))
    for line in sensitivity_lines(scanned, pruning.table.max_drop):
        console.print(line, soft_wrap=True)
