"""Checks of MLflow: whether it can be reached, and whether it knows which runs have ended."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial

from vinedresser.errors import ConfigError, MissingDependency, TrackingAway, TrackingError
from vinedresser.infra.catalog.known_tracking import TRACKING_VARIABLE, known_uris
from vinedresser.infra.catalog.stores import living_owner
from vinedresser.infra.catalog.tracking_uri import absolute_uri, sqlite_path
from vinedresser.infra.services.tracking.client import connected
from vinedresser.masking import masked_text
from vinedresser.objects import Location, open_storage
from vinedresser.store.liveness import read_record_or_none
from vinedresser.store.reading.store_runs import runs_in
from vinedresser.store.records import TrackingRecord
from vinedresser.tasks.health.check import Check, unless_it_fails
from vinedresser.tasks.parents.kinds import parents_in

_AREA = "MLflow"


def tracking_checks(store: Location | None) -> Iterator[Check]:
    """Yield the checks of where MLflow keeps the runs of a store.

    Args:
        store: None: only what the environment names.
    """
    uris = dict.fromkeys(known_uris(store) if store is not None else ())
    if named := os.environ.get(TRACKING_VARIABLE):
        try:
            uris[absolute_uri(named)] = None
        except ConfigError as error:
            remedy = f"correct {TRACKING_VARIABLE}"
            yield Check(_AREA, TRACKING_VARIABLE, "problem", str(error), remedy)
    for uri in uris:
        yield _reached(uri)
    if not uris:
        yield Check(_AREA, "tracking", "ok", "no flow of yours has noted a tracking URI for it")
    if store is not None:
        yield from unless_it_fails(_AREA, "runs", partial(_left_running, store))


def _reached(uri: str) -> Check:
    subject, path = masked_text(uri), sqlite_path(uri)
    try:
        with connected(uri) as client:
            client.search_experiments(max_results=1)
    except MissingDependency as error:
        return Check(_AREA, subject, "problem", str(error), 'pip install "vinedresser[flows]"')
    except TrackingAway as error:
        remedy = "start its server, or restore its file"
        if path is not None and path.exists():
            remedy = f"find out what holds it: fuser {path}"
        return Check(_AREA, subject, "problem", _said(error, subject), remedy)
    except TrackingError as error:
        remedy = "upgrade or repair it as MLflow says"
        if path is None:
            remedy = "correct MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or the address"
        return Check(_AREA, subject, "problem", _said(error, subject), remedy)
    return Check(_AREA, subject, "ok", "answers")


def _said(error: TrackingError, subject: str) -> str:
    # The subject stands before it already.
    return str(error).removeprefix(f"{subject}: ")


def _left_running(store: Location) -> Iterator[Check]:
    """Yield of how many runs that have ended MLflow was not told, as their records say."""
    tracked = 0
    left = []
    faults: list[str] = []
    for place in (store, *parents_in(store)):
        for run in runs_in(place):
            storage = open_storage(run)
            record = read_record_or_none(storage, TrackingRecord, TrackingRecord.KEY, faults)
            tracked += record is not None
            if record is not None and not record.settled and living_owner(run) is None:
                left.append(run.name)
    for fault in faults:
        yield Check(_AREA, "records", "warning", fault, f"vinedresser reconcile {store}")
    if left:
        seen = f"was not told of the end of {len(left)} that nothing runs, such as {left[0]}"
        yield Check(_AREA, "runs", "warning", seen, f"vinedresser reconcile {store}")
    elif tracked and not faults:
        seen = f"of {tracked:,} tracked runs, each that has ended is recorded as settled"
        yield Check(_AREA, "runs", "ok", seen)
