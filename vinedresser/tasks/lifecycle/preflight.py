"""The pre-flight check of a run, before its training begins."""

from __future__ import annotations

from vinedresser.errors import CorruptData
from vinedresser.infra.gpus import NO_GPUS, VISIBLE_GPUS, lease
from vinedresser.infra.launch_values import with_values
from vinedresser.infra.launcher import request_stop
from vinedresser.preflight.launching import check_program
from vinedresser.preflight.record import PreflightRecord
from vinedresser.store.records import LaunchRecord, StopRecord, read_record, write_record
from vinedresser.store.storage import LocalStorage
from vinedresser.tasks.places.run_place import RunPlace

__all__ = ["RULE", "check_first"]

# Takes the place of a rule in the stop record of a run that the checks stop.
RULE = "preflight"


def check_first(place: RunPlace, *, strict: bool) -> None:
    """Check the first steps of a prepared training, and record the result in its run.

    Nothing is recorded if the run is asked to stop meanwhile.

    Args:
        place: place of the run, ready to be launched.
        strict: if a check is suspicious, stop the run before its training begins.

    Raises:
        LaunchError: the program does not exist, or the result cannot be read.
        StoreError: the directory cannot be read or written.
    """
    storage = LocalStorage(place.directory)
    stored = read_record(storage, LaunchRecord)
    if stored is None:
        raise CorruptData(f"{place.directory}: has no {LaunchRecord.KEY}")
    launch = with_values(place.directory, stored)

    def stopping() -> bool:
        return storage.exists(StopRecord.KEY)

    gpus = lease(launch.gpus, stopping) if launch.gpus else NO_GPUS
    try:
        devices = {VISIBLE_GPUS: ",".join(gpus.names)} if launch.gpus else {}
        found = check_program(
            launch.argv,
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
