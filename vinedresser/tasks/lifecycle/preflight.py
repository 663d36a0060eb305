"""The pre-flight check of a run, before its training begins."""

from __future__ import annotations

from typing import Any

from vinedresser.errors import CorruptData
from vinedresser.infra.supervise.gpus import NO_GPUS, VISIBLE_GPUS, lease
from vinedresser.infra.supervise.launch_values import with_values
from vinedresser.infra.supervise.launcher import request_stop
from vinedresser.objects import LocalStorage
from vinedresser.preflight.launching import check_program
from vinedresser.preflight.record import PreflightRecord
from vinedresser.rules.registry import RULES
from vinedresser.store.json_values import DAMAGE, parse_json
from vinedresser.store.records import (
    LaunchRecord,
    RunRecord,
    StopRecord,
    known_keys,
    read_record,
    write_record,
)
from vinedresser.tasks.places.run_place import RunPlace

__all__ = ["RULE", "check_first"]

# Takes the place of a rule in the stop record of a run that the checks stop.
RULE = "preflight"


def check_first(place: RunPlace, *, strict: bool) -> None:
    """Check the first steps of a prepared training, and record the result in its run.

    The built-in rules of the run judge them; others are for its judges, in processes of their own.
    Nothing is recorded if the run is asked to stop meanwhile.

    Args:
        place: place of the run, ready to be launched.
        strict: if a check is suspicious, stop the run before its training begins.

    Raises:
        LaunchError: the program does not exist, or the result cannot be read.
        StoreError: the directory cannot be read or written.
    """
    storage = LocalStorage(place.directory)
    stored, run = read_record(storage, LaunchRecord), read_record(storage, RunRecord)
    if stored is None or run is None:
        missing = (LaunchRecord if stored is None else RunRecord).KEY
        raise CorruptData(f"{place.directory}: has no {missing}")
    launch = with_values(place.directory, stored)

    def stopping() -> bool:
        return storage.exists(StopRecord.KEY)

    gpus = lease(launch.own_gpus, stopping) if launch.own_gpus else NO_GPUS
    try:
        devices = {VISIBLE_GPUS: ",".join(gpus.names)} if launch.own_gpus else {}
        found = check_program(
            launch.argv,
            run,
            _built_in_rules(storage),
            cwd=launch.cwd,
            environment={**launch.environment, **devices},
            given_up=stopping,
        )
    finally:
        gpus.close()
    if stopping():
        return
    record = PreflightRecord.of(found)
    write_record(storage, record)
    if strict and record.suspicious:
        first = record.suspicious[0]
        request_stop(
            place.directory, by="rule", rule=RULE, reason=f"{first.check}: {first.evidence}"
        )


def _built_in_rules(storage: LocalStorage) -> dict[str, dict[str, Any]]:
    """Return the settings of the built-in rules that judge a run, by name.

    Raises:
        StoreError: the storage refused.
    """
    found: dict[str, dict[str, Any]] = {}
    for key in known_keys(storage, "rules", []):
        if not key.endswith(".json"):
            continue
        try:
            table = parse_json(storage.get(key))["rules"]
            found |= {name: dict(table[name]) for name in table if name in RULES}
        except DAMAGE as error:
            raise CorruptData(f"{storage.location}/{key}: not valid rules: {error}") from error
    return found
