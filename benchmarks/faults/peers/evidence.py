"""What the peers are shown of a training, and what they say."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.faults.cases import Case
from benchmarks.faults.history import Trained
from vinedresser.capture.config.capture_config import CaptureConfig
from vinedresser.store.collections.collection import Collection
from vinedresser.store.collections.schedule import SaveConfig
from vinedresser.store.reading.reader import Run
from vinedresser.store.step_record import Mode

__all__ = ["CAPTURED_EVERY", "PEER_CAPTURE", "Alarm", "Evidence"]

# Steps from one look at tensors to the next; the peers that look at gradients do so once an epoch.
CAPTURED_EVERY = 20
_TRAIN = ("train",)
PEER_CAPTURE = CaptureConfig(
    {
        "losses": Collection(save=SaveConfig(every=1)),
        "metrics": Collection(save=SaveConfig(every=1)),
        "gradients": Collection(
            save=SaveConfig(
                every=CAPTURED_EVERY,
                reductions=("abs_mean", "l2", "zero_share", "nonfinite", "p5", "p95"),
            )
        ),
        "weights": Collection(save=SaveConfig(every=CAPTURED_EVERY, modes=_TRAIN)),
        "activations": Collection(save=SaveConfig(every=CAPTURED_EVERY, modes=_TRAIN)),
    }
)


@dataclass(frozen=True)
class Alarm:
    """What a peer says.

    Attributes:
        step: at which it says so.
        symptom: in its own words.
    """

    step: int
    symptom: str


@dataclass(frozen=True)
class Evidence:
    """A training that is over.

    Attributes:
        case: as its user wrote it.
        trained: what came of it, with the history of its epochs.
        run: what was captured for the peers (`PEER_CAPTURE`).
    """

    case: Case
    trained: Trained
    run: Run

    def gradients(self, statistic: str) -> tuple[list[str], NDArray[np.int64], NDArray[np.float64]]:
        """Return a statistic of the gradients of the weights, in the order of the model.

        Returns:
            Their names [L], the steps [S], and the values [S, L].
        """
        columns = self.run.reductions(statistic, "gradients", mode="train")
        names = [name for name in columns if "bias" not in name.rpartition(".")[2]]
        if not names:
            return [], np.empty(0, np.int64), np.empty((0, 0))
        fewest = min(len(columns[name].values) for name in names)
        values = np.stack([columns[name].values[:fewest] for name in names], axis=1)
        return names, columns[names[0]].steps[:fewest], values

    def losses(self, mode: Mode) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return steps and values of the loss in mode "train" or "eval"."""
        columns = list(self.run.scalars("losses", mode=mode).values())
        if not columns:
            return np.empty(0, np.int64), np.empty(0)
        return columns[0].steps, columns[0].values
