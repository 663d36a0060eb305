"""Predictions in groups."""

from __future__ import annotations

import numpy as np

from vinedresser.explain.examples.cells import cells


def test_wrong_predictions_come_by_confusion_cell_largest_first() -> None:
    predicted = ["shirt", "shirt", "coat", "shirt", "bag"]
    true = ["coat", "coat", "shirt", "shirt", None]
    confidence = np.array([0.9, 0.6, 0.5, 0.2, 0.4])
    found = cells(predicted, confidence, true)
    assert [(one.title, one.places) for one in found] == [
        ("coat taken for shirt", (1, 0)),
        ("shirt taken for coat", (2,)),
        ("least confident as bag", (4,)),
    ]


def test_without_labels_the_least_confident_class_comes_first() -> None:
    confidence = np.array([0.9, np.nan, 0.3, 0.5])
    found = cells(["a", "b", "c", "c"], confidence, [None] * 4)
    assert [one.places for one in found] == [(1,), (2, 3), (0,)]
    assert len(cells([*"abcdefghij"], np.arange(10.0), [None] * 10, most=4)) == 4
