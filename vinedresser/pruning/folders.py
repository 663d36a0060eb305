"""Where models are saved: in folders of their own, by round, and in the folder of a pruning.

NAME/result.json                 which round is the result
NAME/models/round-2/pruned/      the model before fine-tuning
NAME/models/round-2/tuning/      weights that a script has saved, while it fine-tunes the model
NAME/models/round-2/tuned/       the model after it
NAME/models/round-2/round.json   the record of the round; written last
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from vinedresser.objects import LocalStorage
from vinedresser.objects.files import folder_below
from vinedresser.store.records import Record, read_record

__all__ = ["PRUNED", "TUNED", "TUNING", "ResultRecord", "model_folder", "round_folder"]

PRUNED, TUNING, TUNED = "pruned", "tuning", "tuned"


@dataclass(frozen=True)
class ResultRecord(Record):
    """The round that a pruning has as its result.

    Attributes:
        round: its number.
        why: why it was chosen, in one sentence.
    """

    KEY: ClassVar[str] = "result.json"

    round: int
    why: str

    @property
    def checksum(self) -> str:
        """SHA-256 of the fields: a damaged number would be that of another model."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> ResultRecord:
        """See `Record.from_json`; the checksum is checked if there is one.

        Raises:
            ValueError: it does not fit.
        """
        record = super().from_json(document)
        if document.get("checksum", record.checksum) != record.checksum:
            raise ValueError("damaged: its checksum does not fit its contents")
        return record

    def to_json(self) -> dict[str, Any]:
        """See `Record.to_json`."""
        return super().to_json() | {"checksum": self.checksum}

    def __post_init__(self) -> None:
        """Refuse what is not the number of a round."""
        if self.round < 0:
            raise TypeError(f"round: must be an integer of at least 0, not {self.round!r}")


def round_folder(pruning: Path, number: int) -> Path:
    """Return the folder of a round.

    Args:
        number: number of the round; 0 is the unpruned model.

    Raises:
        NotAFile: it, or the folder of a model in it, is something else, such as a symbolic link.
    """
    folder = folder_below(pruning, f"models/round-{number}")
    for which in (PRUNED, TUNING, TUNED):
        folder_below(folder, which)
    return folder


def model_folder(folder: Path) -> Path:
    """Return the folder with the saved model that is meant by a folder.

    Args:
        folder: folder of a pruning, which has a result; of a round; or of a saved model.

    Raises:
        CorruptData: the record of the result is damaged.
        StoreError: it cannot be read.
    """
    result = read_record(LocalStorage(folder), ResultRecord)
    if result is not None:
        folder = round_folder(folder, result.round)
    return folder / TUNED if (folder / TUNED).is_dir() else folder
