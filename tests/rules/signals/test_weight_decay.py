"""How much of the weights a decay removes in a step, by framework and optimizer."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from vinedresser.rules.signals.parameters.weight_decay import (
    decay_per_step,
    direct_decay,
    greatest_decay,
)
from vinedresser.store.records import RunRecord


def record(framework: str, *optimizers: dict[str, Any]) -> RunRecord:
    return RunRecord("0" * 32, "run", 0.0, [], framework=framework, optimizers=list(optimizers))


def described(kind: str, **settings: Any) -> dict[str, Any]:
    return {"type": kind, "settings": {"lr": 0.1, "weight_decay": 0.5, **settings}}


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (torch.optim.AdamW, {}),
        (torch.optim.SGD, {}),
        (torch.optim.NAdam, {"decoupled_weight_decay": True}),
        (torch.optim.Adam, {}),
        (torch.optim.RMSprop, {}),
    ],
)
def test_the_share_is_what_a_step_without_a_gradient_removes(
    kind: type[torch.optim.Optimizer], settings: dict[str, Any]
) -> None:
    weight = nn.Parameter(torch.full((4,), 2.0))
    weight.grad = torch.zeros(4)
    kind([weight], lr=0.1, weight_decay=0.5, **settings).step()  # type: ignore[call-arg]
    removed = 1 - float(weight.detach().mean()) / 2.0
    known = decay_per_step(record("torch", described(kind.__name__, **settings)))
    # Others normalise the decay: they remove a step of the learning rate, whatever the decay.
    coupled = kind in (torch.optim.Adam, torch.optim.RMSprop)
    assert known == pytest.approx(0.0 if coupled else removed, rel=1e-5)


def test_all_decay_of_keras_is_decoupled() -> None:
    assert decay_per_step(record("keras", described("Adam"))) == pytest.approx(0.05)
    assert decay_per_step(record("keras", described("Adam", weight_decay=None))) == 0.0


def test_of_several_optimizers_the_largest_counts_but_no_rate_is_known() -> None:
    both = record("torch", described("AdamW"), described("SGD", weight_decay=2.0))
    assert (greatest_decay(both), direct_decay(both)) == (2.0, 0.0)
    assert decay_per_step(both) == pytest.approx(0.2)
    assert (greatest_decay(record("torch")), decay_per_step(record("torch"))) == (0.0, 0.0)
