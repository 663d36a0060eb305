"""`vinedresser status` and `vinedresser reconcile`: list and clean up the runs of a store."""

from __future__ import annotations

import sys
from pathlib import Path

from vinedresser.cli.options import DEFAULT_STORE, StoreArgument
from vinedresser.errors import ConfigError
from vinedresser.objects import Location, parse_location

__all__ = ["reconcile", "status"]


def status(store: StoreArgument = str(DEFAULT_STORE)) -> None:
    """List the runs, sweeps and prunings of a store with their state."""
    from vinedresser.cli.views.console import console, say
    from vinedresser.cli.views.parents import parent_line
    from vinedresser.cli.views.results import results_table
    from vinedresser.store.reading.store_runs import runs_in
    from vinedresser.tasks.lifecycle.run_result import result_or_damage
    from vinedresser.tasks.parents.kinds import parents_in

    place = parse_location(store)
    _check_directory(place)
    runs, parents = runs_in(place), parents_in(place)
    if runs or not parents:
        console.print(results_table([result_or_damage(run) for run in runs]))
    for one in parents:
        say(parent_line(one))


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
        _check_directory(place)
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


def _check_directory(store: Location) -> None:
    """Check that a local store exists.

    Raises:
        ConfigError: no such directory.
    """
    if isinstance(store, Path) and not store.is_dir():
        raise ConfigError(f"{store}: no such directory; give a store or a run directory")
