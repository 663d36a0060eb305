"""Filter pruning: smaller models, with the proof that they compute the same."""

from __future__ import annotations

from vinedresser.errors import PruningError
from vinedresser.pruning.criteria.criterion import Criterion, GroupTensors
from vinedresser.pruning.one_round import Pruned, prune
from vinedresser.pruning.rounds import fine_tuning
from vinedresser.pruning.saving import load, save
from vinedresser.pruning.selection import Limits
from vinedresser.pruning.sensitivity import amounts_within, scan

__all__ = [
    "Criterion",
    "GroupTensors",
    "Limits",
    "Pruned",
    "PruningError",
    "amounts_within",
    "fine_tuning",
    "load",
    "prune",
    "save",
    "scan",
]
