"""Frames: the newest is opaque, earlier ones are dimmed, and later ones are not drawn."""

from __future__ import annotations

import re

import numpy as np

from vinedresser.explain.charts.axes import Size
from vinedresser.explain.charts.frames import ridge_chart
from vinedresser.explain.charts.histograms import HistogramMap

SIZE = Size(450, 140)


def test_a_ridge_has_the_last_steps_and_its_peak_where_the_elements_are() -> None:
    # All elements of step 10 * c are in bin c.
    steps = np.arange(0.0, 50.0, 10.0)
    edges = np.linspace(0.0, 5.0, 6)
    data = HistogramMap("weights/a", steps, edges, np.eye(5), captured=5, damaged=0)
    svg = ridge_chart(data, 35, 3, SIZE, "ridge")
    paths = re.findall(r'<path d="([^"]+)" stroke-opacity="([\d.]+)" data-step="(\d+)"', svg)
    assert [int(step) for _, _, step in paths] == [10, 20, 30]
    assert [float(opacity) for _, opacity, _ in paths] == [0.12, 0.56, 1.0]
    for line, _, step in paths:
        heights = [float(point.split()[1]) for point in re.split("[ML]", line)[1:]]
        # The vertical axis of a picture points down.
        assert int(np.argmin(heights)) == int(step) // 10


def test_a_step_before_the_first_has_the_first() -> None:
    data = HistogramMap("w", np.array([7.0]), np.array([0.0, 1.0]), np.ones((1, 1)), 1, 0)
    assert 'data-step="7"' in ridge_chart(data, 3, 8, SIZE, "ridge")
