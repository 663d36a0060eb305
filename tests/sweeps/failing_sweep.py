"""A sweep of a few trials that are told to its study, until the journal fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.sweeps.studies import run, study
from vinedresser.errors import StoreError

__all__ = ["JOURNAL", "TRIALS", "sweep"]

TRIALS = 3
JOURNAL = "journal.log"


def sweep(folder: Path) -> dict[str, Any]:
    """Run the trials; return the number of those that the study accepted, and the error."""
    told = 0
    try:
        one = study(folder / JOURNAL, trials=TRIALS, sampler="random")
        for value in range(TRIALS):
            run(one, [float(value)])
            told += 1
        one.close()
    except StoreError as error:
        return {"told": told, "error": str(error)}
    return {"told": told, "error": ""}
