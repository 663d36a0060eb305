"""A scan of a pruning file's model: how much each group of channels suffers from pruning."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from vinedresser.pruning.rounds.settings import PruneTable
from vinedresser.pruning.rounds.user_functions import UserFunctions
from vinedresser.pruning.sensitivity import scan

__all__ = ["ENTRY", "main"]

ENTRY = "vinedresser.pruning.rounds.scanning:main"


def main(*, destination: str, **parameters: Any) -> None:
    """Scan the unpruned model in this process.

    Args:
        destination: path of a file that gets the result of `scan` as JSON.
        parameters: settings of the table, each with its prefix.
    """
    table = PruneTable.from_parameters(parameters)
    functions = UserFunctions(table)
    scanned = scan(
        functions.trained_model()[0],
        functions.example(),
        functions.evaluate,
        criterion=functions.criterion,
        losses=functions.losses,
        limits=table.limits,
        kinds=table.kinds,
        ignore=table.ignore,
    )
    Path(destination).write_text(json.dumps(scanned), encoding="utf-8")
