"""The largest change of a column is named in words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from vinedresser.drift.contents import Column
from vinedresser.drift.wording import Reference

RANDOM = np.random.default_rng(0)
NORMAL = RANDOM.normal(size=2000)
CITIES = np.array(["Bonn"] * 70 + ["Kiel"] * 30, object)


@pytest.mark.parametrize(
    ("baseline", "window", "change", "text"),
    [
        (NORMAL, NORMAL[:400] + 1, "median", "standard deviations higher"),
        (NORMAL, NORMAL[:400] * 2, "spread", "times)"),
        (NORMAL, np.where(NORMAL > 1, np.nan, NORMAL), "missing", "missing in"),
        (NORMAL, np.repeat([-0.67, 0, 0.67], [120, 160, 120]), "distribution", "another"),
        (np.zeros(100), np.array([0, 0, 0, 5.0]), "constant", "25.0% of the values are not 0"),
        (NORMAL, np.full(50, np.nan), "missing", "missing in 100.0%"),
        (np.full(100, np.nan), NORMAL, "missing", "missing in 0.0% of the rows, 100.0%"),
        (NORMAL, np.full(50, np.inf), "median", "higher"),
    ],
)
def test_changes_of_numbers(
    baseline: NDArray[np.float64], window: NDArray[np.float64], change: str, text: str
) -> None:
    found = Reference(Column("x", "number", 1, 1), baseline).change(window)
    assert found.change == change
    assert found.text.startswith("x: ")
    assert text in found.text


@pytest.mark.parametrize(
    ("window", "text"),
    [
        (["Bonn"] * 30 + ["Kiel"] * 70, "x: 'Bonn' in 30.0% of the rows, 70.0% in the baseline"),
        (
            ["Bonn"] * 60 + ["Ulm"] * 40,
            "x: 'Ulm' in 40.0% of the rows, 0.0% in the baseline, a new",
        ),
        (["Bonn", None, None], "x: missing in 66.7% of the rows, 0.0% in the baseline"),
        (["Bonn"], "x: "),
    ],
)
def test_changes_of_categories(window: list[Any], text: str) -> None:
    values = np.array([*window, None], object)[:-1]
    found = Reference(Column("x", "category", 1, 1), CITIES).change(values)
    assert found.text.startswith(text)


def test_changes_of_embeddings() -> None:
    rows = RANDOM.normal(size=(500, 8))
    reference = Reference(Column("x", "embedding", 8, 1), rows)
    found = reference.change(rows + 3)
    assert found.change == "mean"
    assert found.how_far == pytest.approx(3 * np.sqrt(8) / np.linalg.norm(rows, axis=1).mean(), 0.1)
    broken = rows.copy()
    broken[:200] = np.nan
    assert reference.change(broken).text.startswith("x: missing in 40.0% of the rows")
