"""Peers' alarms about the trainings of the world, from what was captured of them.

They can judge a script with epochs whose classes or targets were captured with its predictions:
accuracy, or R², is what they judge by.

Shape legend: N rows, C classes, K targets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.faults.history import Epoch
from benchmarks.faults.peers import Alarm, autotrainer, umlaut
from benchmarks.world.stored import StoredCase
from vinedresser.store.reading.reader import Run, open_run
from vinedresser.store.step_record import Mode

__all__ = ["PEERS", "peer_alarms", "score_of"]

PEERS = ("AUTOTRAINER", "UMLAUT")
_LAYERS = ("Linear", "Conv1d", "Conv2d")
_PASSING = (
    *("MaxPool2d", "AdaptiveAvgPool2d", "Dropout", "Flatten", "BatchNorm1d", "BatchNorm2d"),
    "LayerNorm",
)

Array = NDArray[Any]


def peer_alarms(stored: StoredCase) -> dict[str, list[Alarm]]:
    """Return the alarms of each of `PEERS`; {} if they cannot judge the training."""
    if len(stored.runs) != 1 or not stored.ending.epoch:
        return {}
    run = open_run(stored.runs[0])
    epochs = _epochs(run, stored.ending.epoch)
    gradients = _gradients(run, stored.sizes)
    if not epochs or gradients is None:
        return {}
    alarms = (autotrainer.alarms_of_epochs(epochs, gradients), _by_umlaut(run, epochs))
    return dict(zip(PEERS, alarms, strict=True))


def score_of(predictions: Array, labels: Array) -> float | None:
    """Return balanced or plain accuracy as the peers take it, or R².

    Args:
        predictions: scores [N, C] with class numbers, or values [N, K].
        labels: class numbers int [N], or targets [N, K].

    Returns:
        The share of right rows, or R²; None for labels of another kind, such as 0 and 1.
    """
    whole = np.issubdtype(labels.dtype, np.integer)
    if whole and predictions.ndim == 2 and labels.shape == predictions.shape[:1]:
        return float((predictions.argmax(1) == labels).mean())
    if whole or predictions.shape != labels.shape or np.isin(labels, (0, 1)).all():
        return None
    wanted = labels.astype(np.float64)
    spread = np.square(wanted - wanted.mean(0)).sum()
    error = np.square(predictions.astype(np.float64) - wanted).sum()
    return float(1 - error / spread) if spread else None


def _epochs(run: Run, length: int) -> list[Epoch]:
    """Return the epochs with a score; those without captured predictions count with the next."""
    losses = next(iter(run.scalars("losses", mode="train").values()), None)
    name = _scored(run)
    if losses is None or name is None:
        return []
    trained, tested = (_pairs(run, name, mode) for mode in ("train", "eval"))
    epochs: list[Epoch] = []
    begun, last = 0, int(losses.steps[-1]) + 1
    for end in [*range(length, last, length), last]:
        inside = [pair for step, *pair in trained if begun <= step < end]
        score = _score(inside)
        if score is None:
            continue
        part = losses.values[(losses.steps >= begun) & (losses.steps < end)]
        kept = [pair for step, *pair in tested if begun <= step <= end]
        epochs.append(Epoch(end, float(np.mean(part)), score, None, _score(kept)))
        begun = end
    return epochs


def _scored(run: Run) -> str | None:
    """Return the name of the loss with predictions and labels."""
    names = set(run.tensor_names())
    found = (name.partition("/")[2] for name in sorted(names) if name.startswith("labels/"))
    return next((one for one in found if f"predictions/{one}" in names), None)


def _pairs(run: Run, loss: str, mode: Mode) -> list[tuple[int, Array, Array]]:
    """Return step, predictions and labels of each captured batch."""
    wanted = dict(run.tensor(f"labels/{loss}").values(mode))
    said = run.tensor(f"predictions/{loss}").values(mode)
    return [(step, one, wanted[step]) for step, one in said if step in wanted]


def _score(pairs: Sequence[Sequence[Array]]) -> float | None:
    if not pairs:
        return None
    predictions, labels = (list(part) for part in zip(*pairs, strict=True))
    if len({prediction.shape[1:] for prediction in predictions}) > 1 or any(
        label.ndim == 0 for label in labels
    ):
        return None
    return score_of(np.concatenate(predictions), np.concatenate(labels))


def _gradients(run: Run, sizes: dict[str, int]) -> autotrainer.Gradients | None:
    """Return the gradients of the weights; None if there are none."""
    norms, zeros = (run.reductions(one, "gradients", mode="train") for one in ("l2", "zero_share"))
    names = [
        name
        for name in norms
        if "bias" not in name.rpartition(".")[2]
        and name in zeros
        and name.partition("/")[2] in sizes
    ]
    if not names:
        return None
    fewest = min(len(table[name].values) for name in names for table in (norms, zeros))
    return autotrainer.Gradients(
        norms[names[0]].steps[:fewest],
        np.stack([norms[name].values[:fewest] for name in names], axis=1),
        np.stack([zeros[name].values[:fewest] for name in names], axis=1),
        [sizes[name.partition("/")[2]] for name in names],
    )


def _by_umlaut(run: Run, epochs: Sequence[Epoch]) -> list[Alarm]:
    """Return UMLAUT's alarms; outputs of torch's losses need no softmax, so that check is out."""
    static = {
        umlaut.INPUTS: _inputs_out_of_range(run),
        umlaut.DROPOUT: any(share > 0.5 for share in run.info.dropout.values()),
        umlaut.MISSING: _hidden_linear([kind for kind, *_ in run.info.modules.values()]),
        umlaut.RATE: any(
            umlaut.rate_out_of_range(optimizer["settings"]["lr"])
            for optimizer in run.info.optimizers
            if isinstance(optimizer.get("settings", {}).get("lr"), float)
        ),
    }
    alarms = [Alarm(0, word) for word, found in static.items() if found]
    classifies = all(0 <= epoch.score <= 1 for epoch in epochs)
    return alarms + (umlaut.alarms_of_accuracies(epochs) if classifies else [])


def _inputs_out_of_range(run: Run) -> bool:
    """Return whether the first captured inputs are out of UMLAUT's range."""
    for name in run.tensor_names():
        if name.startswith("inputs/"):
            for _, values in run.tensor(name).values("train"):
                if not np.issubdtype(values.dtype, np.floating):
                    return False
                low, high = np.nanmin(values, initial=0), np.nanmax(values, initial=0)
                return umlaut.inputs_out_of_range(float(low), float(high))
    return False


def _hidden_linear(kinds: Sequence[str]) -> bool:
    """Return whether two layers with weights have no activation between them."""
    waits = False
    for kind in kinds:
        if kind in _LAYERS:
            if waits:
                return True
            waits = True
        elif kind not in _PASSING:
            waits = False
    return False
