"""The record of a pruning, which must match when the pruning is resumed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from vinedresser.masking import masked_value
from vinedresser.store.records import ParentRecord

__all__ = ["PruningRecord"]


@dataclass(frozen=True, kw_only=True)
class PruningRecord(ParentRecord):
    """A pruning as its first process created it.

    Attributes:
        prune: what decides about each round: the table ``[prune]`` without targets and limits of
            the whole, which may change when it is resumed.
        parameters: parameters of every fine-tuning.
    """

    KEY: ClassVar[str] = "pruning.json"
    WORD: ClassVar[str] = "pruning"
    LOCK: ClassVar[str] = "pruning.lock"
    PAGE: ClassVar[str] = "pruning.html"
    SAME: ClassVar[tuple[str, ...]] = ("prune", "parameters")

    prune: dict[str, Any]
    parameters: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """See `Record.to_json`; what looks like a secret is masked."""
        return super().to_json() | {"parameters": masked_value("", self.parameters)}
