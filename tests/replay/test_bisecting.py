"""The smallest set of samples that breaks a step."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from vinedresser.replay.bisecting import smallest

SAMPLES = [(0, row) for row in range(64)]


def needing(*rows: int) -> Callable[[Sequence[tuple[int, int]]], bool]:
    """Return whether all of some rows are there."""
    return lambda some: {(0, row) for row in rows} <= set(some)


@pytest.mark.parametrize("row", range(64))
def test_one_of_64_takes_at_most_ten_runs(row: int) -> None:
    found = smallest(SAMPLES, needing(row))
    assert found.samples == [(0, row)]
    assert found.runs <= 10
    assert found.complete


@pytest.mark.parametrize("rows", [(0, 1), (3, 60), (31, 32), (0, 20, 63)])
def test_samples_that_only_break_it_together(rows: tuple[int, ...]) -> None:
    found = smallest(SAMPLES, needing(*rows))
    assert [row for _, row in found.samples] == list(rows)
    assert found.complete


def test_either_of_two() -> None:
    found = smallest(SAMPLES, lambda some: bool({(0, 5), (0, 50)} & set(some)))
    assert len(found.samples) == 1


def test_only_all_together() -> None:
    found = smallest(SAMPLES[:8], needing(*range(8)))
    assert found.samples == SAMPLES[:8]
    assert found.complete


def test_the_number_of_runs_is_bounded() -> None:
    found = smallest(SAMPLES, needing(*range(64)), most=20)
    assert found.runs <= 20
    assert not found.complete


def test_of_several_batches() -> None:
    samples = [(number, row) for number in range(3) for row in range(5)]
    assert smallest(samples, lambda some: (2, 4) in some).samples == [(2, 4)]
