"""The progress of losses that have been below zero: their first value is no unit."""

from __future__ import annotations

import math
import random

import pytest

from vinedresser.rules.signals.losses.loss_progress import LossProgress


def progress(*values: float) -> LossProgress:
    found = LossProgress(200, 0.1)
    for step, value in enumerate(values):
        found.add(step, value)
    return found


def generator(seed: int, size: float = 1.0) -> list[float]:
    """Return the loss of a generator: near zero at first, then to and fro across it."""
    draw = random.Random(seed)
    return [
        size * (0.02 * step / 50 * math.sin(step / 90 + seed) + draw.gauss(0, 0.01))
        for step in range(1200)
    ]


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("seed", range(6))
def test_a_loss_that_crosses_zero_neither_grows_nor_stands(seed: int, size: float) -> None:
    found = LossProgress(200, 0.1)
    for step, value in enumerate(generator(seed, size)):
        found.add(step, value)
        assert not found.blown_up(1.0)
        assert found.stuck() is None
        assert found.unrecovered() is None


def test_an_energy_that_rises_towards_zero_does_not_grow() -> None:
    found = progress(*[-0.06 - 0.01 * (step % 2) for step in range(60)], *[-0.001] * 60)
    assert not found.thrown_up()


def test_a_log_likelihood_that_diverges_has_blown_up() -> None:
    falls = [1.4 - 0.01 * step for step in range(340)]
    assert not progress(*falls).blown_up(1.0)
    assert progress(*falls, *[500.0 + step for step in range(60)]).blown_up(1.0)


def test_a_loss_above_zero_grows_relative_to_its_first_value() -> None:
    assert progress(0.04, *[0.13] * 240).blown_up(1.0)
