"""Evidence that the peers receive, and their alarms."""

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

# Steps between checks of tensors; peers that check gradients do so once per epoch.
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
    """An alarm of a peer.

    Attributes:
        step: step of the alarm.
        symptom: symptom in the peer's words.
    """

    step: int
    symptom: str


@dataclass(frozen=True)
class Evidence:
    """A completed training.

    Attributes:
        case: case as written by its user.
        trained: completed training with the history of its epochs.
        run: run with the tensors captured for the peers (`PEER_CAPTURE`).
    """

    case: Case
    trained: Trained
    run: Run

    def gradients(self, statistic: str) -> tuple[list[str], NDArray[np.int64], NDArray[np.float64]]:
        """Return a statistic of the gradients of the weights, in model order.

        Returns:
            Names [L], steps [S], and values [S, L].
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
