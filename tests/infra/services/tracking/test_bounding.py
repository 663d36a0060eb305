"""Values of a metric that diverges are bounded in MLflow, all others are sent as they are."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vinedresser.infra.services.tracking import Bounding


def sent(values: Sequence[float]) -> tuple[list[float], str]:
    """Return what is sent of the values of a metric, in order, and the note."""
    points: list[tuple[int, float]] = []
    bounding = Bounding(lambda value, *, step, time: points.append((step, value)))
    for step, value in enumerate(values):
        bounding.add(value, step=step, time=step)
    bounding.close()
    assert [step for step, _ in points] == list(range(len(values)))
    return [value for _, value in points], bounding.note


def test_a_loss_that_diverges_is_sent_up_to_ten_times_the_usual() -> None:
    found, note = sent([2.0] * 50 + [30.0, 400.0, 1e31, -1e9, 5.0, math.inf])
    assert found == [2.0] * 50 + [20.0, 20.0, 20.0, -20.0, 5.0, 20.0]
    assert note == "inf at step 55; sent up to 20"


@pytest.mark.parametrize(
    "values",
    [
        [0.001 * 1.02**step for step in range(500)],
        [0.0] * 20 + [900.0] * 20,
        [1e12 / (step + 1) for step in range(200)],
        [3.0] * 50 + [50.0] * 300,
        [math.nan, 1.0, math.nan],
        [-0.01 - step for step in range(300)],
    ],
    ids=["rises", "leaves zero", "falls from far", "new level", "nan", "negative"],
)
def test_losses_that_do_not_diverge_are_sent_as_they_are(values: list[float]) -> None:
    found, note = sent(values)
    assert note == ""
    assert [str(one) for one in found] == [str(value) for value in values]


def test_the_first_value_may_be_infinite() -> None:
    assert sent([math.inf, 1.0])[0] == [10.0, 1.0]


@given(st.lists(st.floats(allow_nan=False), max_size=300))
def test_no_value_is_lost_moved_or_made_larger(values: list[float]) -> None:
    found, note = sent(values)
    for one, original in zip(found, values, strict=True):
        assert one == original or (note and abs(one) < abs(original) and one * original >= 0)
