"""A relay of a finished run, whose spool or whose store is in the folder where calls fail."""

from __future__ import annotations

import os
import shutil
from itertools import islice
from pathlib import Path

from vinedresser.infra.supervise.relay.__main__ import main
from vinedresser.objects import LocalStorage
from vinedresser.store.spool import adopt_spool
from vinedresser.store.writing.writer import RunWriter
from vinedresser.testing.runs import end_run, start_run
from vinedresser.testing.writing import known_records

__all__ = ["CHECKPOINT", "RECORDS", "places", "prepare", "relay_from", "relay_to"]

RECORDS = 3
CHECKPOINT = b"weights"


def places(scenario: str, folder: Path) -> tuple[Path, Path]:
    """Return the spool and the store of a scenario; one of them is in the folder."""
    if scenario == "relay_from":
        return folder / "spool", folder.with_suffix(".store")
    return folder.with_suffix(".spool"), folder / "store"


def prepare(folder: Path) -> None:
    """Write the spools of both scenarios."""
    for scenario in ("relay_from", "relay_to"):
        spool, store = places(scenario, folder)
        if scenario == "relay_from":
            write(spool)
        else:
            shutil.copytree(places("relay_from", folder)[0], spool)
            shutil.rmtree(spool / ".relay")
        os.close(adopt_spool(spool, str(store)))


def write(folder: Path) -> None:
    """Write a run with a checkpoint, each record in a segment of its own."""
    start_run(folder)
    writer = RunWriter(LocalStorage(folder))
    for record in islice(known_records(0), RECORDS):
        writer.add(record)
        writer.flush()
    writer.close()
    LocalStorage(folder).put("checkpoints/last.npz", [CHECKPOINT])
    end_run(folder)


def relay_from(folder: Path) -> int:
    """Upload a spool in which calls fail; return the exit code."""
    return main(places("relay_from", folder)[0])


def relay_to(folder: Path) -> int:
    """Upload to a store in which calls fail; return the exit code."""
    return main(places("relay_to", folder)[0])
