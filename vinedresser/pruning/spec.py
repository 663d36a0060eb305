"""The record of a pruning, which must match when the pruning is resumed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from vinedresser.masking import masked_value
from vinedresser.objects import Storage
from vinedresser.pruning.folders import TUNED, ResultRecord
from vinedresser.store.liveness import read_record_or_none
from vinedresser.store.records import EXPERIMENT_KEY, ParentRecord

__all__ = ["MODEL", "PruningRecord"]

# The artifact with the model that is the result, a folder.
MODEL = "model"
# What is kept of each round: its record, and the proof of the removal.
_KEPT = ("/round.json", "/pruned/proof.json")


@dataclass(frozen=True, kw_only=True)
class PruningRecord(ParentRecord):
    """A pruning as its first process created it.

    Attributes:
        prune: what decides about each round: the table ``[prune]`` without targets and limits of
            the whole, which may change when it is resumed.
        parameters: parameters of every fine-tuning.
        register: name under which the result becomes a registered model; "": it does not.
    """

    KEY: ClassVar[str] = "pruning.json"
    WORD: ClassVar[str] = "pruning"
    LOCK: ClassVar[str] = "pruning.lock"
    PAGE: ClassVar[str] = "pruning.html"
    FILES: ClassVar[tuple[str, ...]] = (KEY, PAGE, EXPERIMENT_KEY, ResultRecord.KEY, "models/")
    SAME: ClassVar[tuple[str, ...]] = ("prune", "parameters")

    prune: dict[str, Any]
    parameters: dict[str, Any]
    register: str = ""

    def artifacts(self, storage: Storage) -> dict[str, str]:
        """See `ParentRecord.artifacts`: also records and proofs of rounds, and the resulting model.

        Raises:
            StoreError: the folder cannot be read.
        """
        found = super().artifacts(storage)
        keys = storage.list("models/")
        for key in keys:
            if key.endswith(_KEPT):
                found[f"rounds/{key.removeprefix('models/')}"] = key
        if (result := read_record_or_none(storage, ResultRecord, ResultRecord.KEY, [])) is not None:
            found[ResultRecord.KEY] = ResultRecord.KEY
            model = f"models/round-{result.round}/{TUNED}/"
            found |= {f"{MODEL}/{key.removeprefix(model)}": key for key in keys if model in key}
        return found

    def to_json(self) -> dict[str, Any]:
        """See `Record.to_json`; what looks like a secret is masked."""
        return super().to_json() | {"parameters": masked_value("", self.parameters)}
