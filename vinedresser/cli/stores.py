"""`vinedresser status` and `vinedresser reconcile`: the verdicts of runs, and cleaning up."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from vinedresser.cli.options import DEFAULT_STORE, StoreArgument, check_directory
from vinedresser.objects import parse_location

__all__ = ["reconcile", "status"]


def status(
    place: Annotated[
        str,
        typer.Argument(metavar="STORE|RUN", help="Directory of runs or of a run, or s3://…."),
    ] = str(DEFAULT_STORE),
    *,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per run instead.")
    ] = False,
) -> None:
    """List the runs, sweeps and prunings of a store, or tell the verdict on a run."""
    from vinedresser.cli.views.console import line_room, print_table, say
    from vinedresser.cli.views.parents import parent_line
    from vinedresser.cli.views.results import print_result, results_table
    from vinedresser.objects import open_storage
    from vinedresser.store.reading.store_runs import runs_in
    from vinedresser.store.records import RunRecord
    from vinedresser.tasks.lifecycle.run_result import result_or_damage, run_result
    from vinedresser.tasks.parents.kinds import parents_in

    location = parse_location(place)
    check_directory(location)
    single = open_storage(location).exists(RunRecord.KEY)
    results = (
        [run_result(location)] if single else [result_or_damage(one) for one in runs_in(location)]
    )
    if as_json:
        for run in results:
            # Unlike rich, it wraps nothing.
            typer.echo(json.dumps(run.to_json()))
        return
    if single:
        print_result(results[0])
        if not results[0].status.over:
            say(f"  open its page  vinedresser watch {place}", style="dim")
        return
    parents = parents_in(location)
    if not results and not parents:
        say(f"{place}: no runs")
    if results:
        print_table(results_table(results, line_room()))
    for parent in parents:
        say(parent_line(parent))


def reconcile(store: StoreArgument = str(DEFAULT_STORE)) -> None:
    """Clean up after a crash.

    Ends leftover processes and completes exit records, MLflow runs, Prefect flow runs and pending
    uploads of a store and its sweeps and prunings. Running it again changes nothing.
    """
    from vinedresser.cli.views.console import say
    from vinedresser.infra.catalog.flow_records import dead_flows
    from vinedresser.infra.catalog.run_notes import RunNote, removed_runs
    from vinedresser.infra.catalog.stores import local_state
    from vinedresser.infra.services.prefect_environment import prepare_prefect, use_standing
    from vinedresser.tasks.parents.kinds import parents_in
    from vinedresser.tasks.parents.parent_notes import is_removed_parent, removed_parents
    from vinedresser.tasks.reconcile.reconcile import reconcile as reconcile_store
    from vinedresser.tasks.reconcile.reconcile import reconcile_spools

    place = parse_location(store)
    results = reconcile_spools()
    inner = removed_parents(place) if isinstance(place, Path) else []
    removed = isinstance(place, Path) and (
        bool(inner) or is_removed_parent(place) or any(removed_runs(place, [], RunNote))
    )
    if not results and not removed:
        check_directory(place)
    if not isinstance(place, Path) or place.is_dir() or removed:
        places = [place, *parents_in(place), *inner]
        # The flow runs of a private server have ended with it.
        left = any(flow.server for one in places for flow in dead_flows(one, []))
        prefect = left and use_standing()
        if prefect:
            prepare_prefect(local_state(place))()
        for one in places:
            results += reconcile_store(one, prefect=prefect)
    for result in results:
        say(f"{result.what}   {result.done}")
    if not results:
        say("nothing to reconcile")
    sys.exit(1 if any(result.failed for result in results) else 0)
