"""Randomly drawn cases: a usual training, and the same with one fault.

No rule was developed on these cases, so they show how rules behave on new ones. A seed whose cases
have been inspected is a development seed from then on.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.faults.cases import Case, case_of

__all__ = ["DRAWN_FAULTS", "draw_cases"]

_Table = dict[str, Any]


@dataclass(frozen=True)
class _Subject:
    """A data set and the expected results of a training on it.

    Attributes:
        data: name of the data set.
        outputs: number of outputs of the model.
        loss: loss on raw outputs.
        learned: accuracy, or R2, that a usual training reaches.
        misses: upper bound for a faulty training.
    """

    data: str
    outputs: int
    loss: str
    learned: float
    misses: float

    @property
    def measure(self) -> str:
        """Measure of the outcome."""
        return "r2" if self.loss == "mse" else "acc"


_SUBJECTS = (
    _Subject("digits_flat", 10, "ce_logits", 0.95, 0.8),
    _Subject("iris", 3, "ce_logits", 0.93, 0.8),
    _Subject("wine", 3, "ce_logits", 0.95, 0.8),
    _Subject("cancer", 1, "bce_logits", 0.95, 0.85),
    _Subject("moons", 1, "bce_logits", 0.93, 0.8),
    _Subject("classification", 4, "ce_logits", 0.8, 0.6),
    _Subject("waves_flat", 3, "ce_logits", 0.9, 0.7),
    _Subject("friedman", 1, "mse", 0.75, 0.5),
    _Subject("sine", 1, "mse", 0.8, 0.5),
)


def draw_cases(count: int, seed: int) -> list[Case]:
    """Return pairs of cases: a healthy one, and the same with a fault.

    Args:
        count: number of pairs; the faults are used in turn.
        seed: random seed.
    """
    draw = random.Random(seed)
    cases = []
    names = list(DRAWN_FAULTS)
    draw.shuffle(names)
    for number in range(count):
        fault = names[number % len(names)]
        table, subject = _usual(draw)
        spoilt = copy.deepcopy(table)
        DRAWN_FAULTS[fault](spoilt, draw)
        name = f"drawn-{seed}-{number:03d}"
        healthy = {"all": [[subject.measure, ">=", subject.learned], ["nan", "==", False]]}
        faulty = {"any": [[subject.measure, "<", subject.misses], ["nan", "==", True]]}
        about = {"id": f"{name}-H", "kind": "healthy", "fault_class": "healthy", "expect": healthy}
        cases.append(case_of({**table, **about}))
        about = {"id": f"{name}-F", "kind": "faulty", "fault_class": fault, "expect": faulty}
        cases.append(case_of({**spoilt, **about}))
    return cases


def _usual(draw: random.Random) -> tuple[_Table, _Subject]:
    """Return a training as a user would write it, and its subject."""
    subject = draw.choice(_SUBJECTS)
    activation = draw.choice(["relu", "relu", "tanh", "elu", "gelu", "leaky_relu", "silu"])
    model: list[_Table] = []
    for _ in range(draw.randint(1, 3)):
        model.append({"dense": draw.choice([16, 24, 32, 48, 64, 96]), "act": activation})
        if draw.random() < 0.15:
            model.append({"dropout": draw.choice([0.1, 0.2])})
    model.append({"dense": subject.outputs})
    name = draw.choice(["adam", "adam", "sgd", "rmsprop", "adamw"])
    rates = {"sgd": (0.02, 0.1), "rmsprop": (1e-3, 3e-3)}.get(name, (2e-3, 1e-2))
    optimizer: _Table = {"name": name, "lr": float(f"{draw.uniform(*rates):.2g}")}
    if name == "sgd":
        optimizer["momentum"] = 0.9
    table = {
        "data": {"name": subject.data},
        "model": model,
        "init": draw.choice(["torch", "glorot_uniform", "he_uniform"]),
        "loss": subject.loss,
        "optimizer": optimizer,
        "batch": draw.choice([16, 32, 64]),
        "steps": draw.choice([400, 600, 800, 1000]),
        "train": {},
    }
    return table, subject


def _rate(low: float, high: float) -> Callable[[_Table, random.Random], None]:
    """Return a fault: the learning rate times a power of ten."""

    def spoil(table: _Table, draw: random.Random) -> None:
        factor = 10 ** draw.uniform(low, high)
        table["optimizer"]["lr"] = float(f"{table['optimizer']['lr'] * factor:.2g}")

    return spoil


def _train(**settings: Any) -> Callable[[_Table, random.Random], None]:
    """Return a fault of the loop."""

    def spoil(table: _Table, draw: random.Random) -> None:  # noqa: ARG001 (as the others)
        table["train"] = {**table["train"], **settings}

    return spoil


def _labels(word: str) -> Callable[[_Table, random.Random], None]:
    """Return a fault of the labels."""

    def spoil(table: _Table, draw: random.Random) -> None:  # noqa: ARG001 (as the others)
        table["data"] = {**table["data"], "labels": word}

    return spoil


def _initial(table: _Table, draw: random.Random) -> None:
    table["init"] = draw.choice(["zeros", f"normal:{draw.choice([4.0, 8.0])}", "normal:0.0001"])


def _deep_sigmoid(table: _Table, draw: random.Random) -> None:
    *_, last = table["model"]
    hidden = {"dense": draw.choice([16, 32]), "act": "sigmoid"}
    table["model"] = [*({**hidden} for _ in range(draw.randint(7, 10))), last]


def _raw_inputs(table: _Table, draw: random.Random) -> None:
    table["data"] = {**table["data"], "scale": draw.choice([300.0, 3000.0])}


def _last_activation(table: _Table, draw: random.Random) -> None:
    word = "relu" if table["model"][-1]["dense"] == 1 else draw.choice(["relu", "softmax"])
    table["model"][-1]["act"] = word


def _decay(table: _Table, draw: random.Random) -> None:
    table["optimizer"] = {"name": "adamw", "lr": 0.005, "weight_decay": draw.choice([50.0, 100.0])}


def _dropout(table: _Table, draw: random.Random) -> None:
    hidden = [layer for layer in table["model"][:-1] if "dense" in layer]
    rate = draw.choice([0.9, 0.95])
    table["model"] = [
        *(part for layer in hidden for part in (layer, {"dropout": rate})),
        table["model"][-1],
    ]


def _bias(table: _Table, draw: random.Random) -> None:
    for layer in table["model"][:-1]:
        if "dense" in layer:
            layer |= {"act": "relu", "bias_init": f"constant:{draw.choice([-10, -20])}"}


# Modification of a training by fault class (`classes.CLASSES`).
DRAWN_FAULTS: dict[str, Callable[[_Table, random.Random], None]] = {
    "lr_too_high": _rate(2.0, 3.5),
    "lr_too_low": _rate(-5.0, -4.0),
    "bad_init": _initial,
    "vanishing": _deep_sigmoid,
    "unnormalised_input": _raw_inputs,
    "wrong_output_activation": _last_activation,
    "missing_zero_grad": _train(missing_zero_grad=True),
    "not_in_optimizer": _train(not_in_optimizer=["first", "last"]),
    "missing_step": _train(missing_step=True),
    "shuffled_labels": _labels("shuffled"),
    "over_regularisation": _decay,
    "dropout_too_high": _dropout,
    "scheduler_to_zero": _train(schedule="to_zero", schedule_steps=20),
    "dead_relu": _bias,
}
