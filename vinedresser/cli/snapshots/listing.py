"""`vinedresser snapshots`: list the snapshots of a run."""

from __future__ import annotations

from vinedresser.cli.options import RunArgument
from vinedresser.errors import NotARun

__all__ = ["snapshots"]


def snapshots(run: RunArgument) -> None:
    """List the snapshots of a run."""
    from vinedresser.cli.views.console import console, error_console, say
    from vinedresser.cli.views.snapshots import snapshot_table
    from vinedresser.objects import open_storage
    from vinedresser.snapshots.reading import list_snapshots
    from vinedresser.snapshots.replay_record import read_replay
    from vinedresser.store.records import RunRecord

    storage = open_storage(run)
    if not storage.exists(RunRecord.KEY):
        raise NotARun(f"{run}: not a run: it has no {RunRecord.KEY}")
    faults: list[str] = []
    found = list_snapshots(storage, faults)
    if not found:
        console.print(f"{run}: no snapshots", soft_wrap=True, markup=False)
    else:
        console.print(snapshot_table(found))
    for one in found:
        replayed = read_replay(storage, one.name, faults)
        for sentence in [] if replayed is None else replayed.sentences:
            say(f"{one.name}: {sentence}")
    for fault in faults:
        error_console.print(f"vinedresser: {fault}", soft_wrap=True, markup=False)
