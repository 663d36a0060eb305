"""UMLAUT (Schoop et al., CHI 2021), with its published thresholds."""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.faults.cases import Case
from benchmarks.faults.history import Epoch
from benchmarks.faults.networks.layers import Layer
from benchmarks.faults.networks.losses import LOSSES
from benchmarks.faults.peers.evidence import Alarm, Evidence

__all__ = [
    "DROPOUT",
    "INPUTS",
    "MISSING",
    "RATE",
    "alarms_of",
    "alarms_of_accuracies",
    "hidden_linear",
    "inputs_out_of_range",
    "last_activation",
    "rate_out_of_range",
]

# Its alarms about a program before the first step.
DROPOUT = "dropout over 0.5"
INPUTS = "input outside of -1 to 1"
MISSING = "missing activation"
RATE = "learning rate out of range"

_WITH_WEIGHTS = ("dense", "linear", "conv", "conv2d", "conv1d")
_PASSING = ("maxpool", "avgpool", "dropout", "spatial_dropout", "flatten", "bn", "batchnorm")


def alarms_of(evidence: Evidence) -> list[Alarm]:
    """Return its alarms about the program before the first step and accuracy after each epoch."""
    case = evidence.case
    rows = evidence.trained.data.x
    low, high = float(rows.min()), float(rows.max())
    rate = case.optimizer["lr"]
    static = {
        "missing softmax before the loss": _lacks_softmax(case),
        MISSING: hidden_linear(case.model),
        DROPOUT: any(layer.kind == "dropout" and layer.value > 0.5 for layer in case.model),
        INPUTS: inputs_out_of_range(low, high),
        RATE: rate_out_of_range(rate),
    }
    alarms = [Alarm(0, word) for word, found in static.items() if found]
    if evidence.trained.data.classes:
        alarms += alarms_of_accuracies(evidence.trained.history.epochs)
    return alarms


def alarms_of_accuracies(epochs: Iterable[Epoch]) -> list[Alarm]:
    """Return its alarms about the accuracies of a classifier."""
    alarms = []
    for epoch in epochs:
        if epoch.val_score is None:
            continue
        if epoch.val_score > 0.95:
            alarms.append(Alarm(epoch.step, "validation accuracy suspiciously high"))
        if epoch.val_score > epoch.score + 0.05:
            alarms.append(Alarm(epoch.step, "validation accuracy above training's"))
    return alarms


def rate_out_of_range(rate: float) -> bool:
    """Return whether it finds a learning rate too high or too low."""
    return rate > 0.01 or rate < 1e-7


def inputs_out_of_range(low: float, high: float) -> bool:
    """Return whether it finds that inputs are not normalised."""
    return low < -1 or high > 1


def last_activation(layers: tuple[Layer, ...]) -> str:
    """Return the activation of the outputs; "" for none."""
    last = layers[-1]
    return str(last.value) if last.kind == "act" else last.act


def hidden_linear(layers: tuple[Layer, ...]) -> bool:
    """Return whether two layers with weights have no activation between them."""
    open_layer = False
    for layer in layers:
        if layer.kind in _WITH_WEIGHTS:
            if open_layer:
                return True
            open_layer = not layer.act
        elif layer.kind not in _PASSING or layer.act:
            open_layer = False
    return False


def _lacks_softmax(case: Case) -> bool:
    """Return whether a cross-entropy of class probabilities has no softmax before it."""
    kind = LOSSES[case.loss]
    crossentropy = kind.outputs == "probabilities" and "bce" not in case.loss
    return crossentropy and "binary" not in case.loss and last_activation(case.model) != "softmax"
