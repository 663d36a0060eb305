"""`unbounded_loss` at the end of short runs, and of adversaries."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from vinedresser.rules.judge import judge
from vinedresser.rules.losses.unbounded_loss import UnboundedLoss
from vinedresser.store.records import POLICY_GRADIENT
from vinedresser.testing.runs import make_run, step_record


def found(
    path: Path,
    value: Callable[[int], float],
    *,
    steps: int = 150,
    optimizers: int = 1,
    function: str = "",
    known: str = "critic",
) -> list[tuple[str, int]]:
    """Return fault and step of the findings in a run whose losses are given."""
    names = ("critic", "actor")[:optimizers]
    adam = {"type": "Adam", "settings": {"lr": 0.001}, "parameters": 10, "tensors": 1}
    run = make_run(
        path / "run",
        [
            step_record(step, scalars={f"losses/{name}": value(step) for name in names})
            for step in range(steps)
        ],
        optimizers=[adam] * optimizers,
        losses={known: {"function": function, "negated": False}} if function else {},
    )
    return [(one.fault, one.step) for one in judge(run, [UnboundedLoss()])]


def steady(step: int) -> float:
    """A loss that falls by the same amount in each step, to 14 times its first size."""
    return -0.7 - 2.5 * step


def slowing(step: int) -> float:
    """A log-likelihood that falls from 0 to -48, ever more slowly."""
    return 0.0 if step < 20 else -10 * math.log(step - 19)


def test_a_steady_fall_is_reported_at_the_end(tmp_path: Path) -> None:
    assert found(tmp_path, steady) == [("unbounded_loss", 149)]


@pytest.mark.parametrize(
    ("value", "steps"),
    [(steady, 90), (slowing, 150), (lambda step: 40 - step, 150)],
    ids=["too short", "slows down", "not far below its size"],
)
def test_other_falls_are_not(value: Callable[[int], float], steps: int, tmp_path: Path) -> None:
    assert found(tmp_path, value, steps=steps) == []


def test_a_policy_gradient_may_fall(tmp_path: Path) -> None:
    assert found(tmp_path, steady, function=POLICY_GRADIENT) == []


@pytest.mark.parametrize(("function", "reported"), [(POLICY_GRADIENT, False), ("mse_loss", True)])
def test_so_may_a_loss_of_unknown_function_beside_one(
    function: str, *, reported: bool, tmp_path: Path
) -> None:
    assert bool(found(tmp_path, steady, function=function, known="actor")) == reported


@pytest.mark.parametrize(("growth", "reported"), [(1.1, True), (1.05, False)])
def test_of_adversaries_only_a_fall_that_no_game_explains_counts(
    growth: float, *, reported: bool, tmp_path: Path
) -> None:
    # To -1.5e6 and to -1,434.
    assert bool(found(tmp_path, lambda step: -(growth**step), optimizers=2)) == reported
