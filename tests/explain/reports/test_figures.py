"""Parts of charts, compared with slow and obvious computations."""

from __future__ import annotations

import base64
import io
import math
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from vinedresser.explain.charts.axes import Scale, nice_scale
from vinedresser.explain.charts.line_chart import smoothed, thinned
from vinedresser.explain.charts.palette import (
    FIRST_LEVEL,
    LEVELS,
    NONE,
    NOT_FINITE,
    ZERO,
    colour,
    indexed_png,
)
from vinedresser.explain.charts.svg import element, path_data
from vinedresser.explain.formatting import count, duration, evidence_rows, number
from vinedresser.plain_text import visible

FLOATS = st.floats(allow_nan=True, allow_infinity=True, width=64)


def test_the_trend_is_a_local_straight_line() -> None:
    rng = np.random.default_rng(3)
    steps = np.arange(100)
    values = np.sin(steps / 15) + rng.normal(0, 0.2, 100)
    where, trend = smoothed(steps, values)
    np.testing.assert_allclose(where, steps, atol=1e-9)
    for at in (0, 1, 37, 99):
        weight = np.exp(-0.5 * ((steps - at) / 1.5) ** 2)
        weight[np.abs(steps - at) > 6] = 0
        line = np.polyfit(steps, values, 1, w=np.sqrt(weight))
        assert trend[at] == pytest.approx(np.polyval(line, at), abs=1e-6)


def test_the_trend_of_a_straight_line_with_gaps_is_itself() -> None:
    steps = np.arange(5000) * 7
    values = np.asarray(3.0 - 0.001 * steps, dtype=np.float64)
    values[1000:1500] = np.nan
    values[3] = np.inf
    where, trend = smoothed(steps, values)
    assert len(where) <= 400
    np.testing.assert_allclose(trend, 3.0 - 0.001 * where, atol=1e-6)


@pytest.mark.parametrize("size", [0, 1, 29])
def test_few_points_have_no_trend(size: int) -> None:
    assert len(smoothed(np.arange(size), np.ones(size))[0]) == 0


def test_thinning_keeps_every_spike() -> None:
    values = np.zeros(100_000)
    values[54_321], values[99_999] = 7.0, -3.0
    steps, kept = thinned(np.arange(100_000), values)
    assert len(kept) <= 800
    assert steps[kept == 7.0].tolist() == [54_321]
    assert steps[kept == -3.0].tolist() == [99_999]
    assert np.all(np.diff(steps) > 0)


def test_thinning_breaks_the_line_at_values_that_are_not_finite() -> None:
    values = np.ones(10_000)
    values[4000:6000] = np.nan
    steps, kept = thinned(np.arange(10_000), values)
    inside = (steps >= 4025) & (steps < 5975)
    assert np.isnan(kept[inside]).all()
    assert np.isfinite(kept[~inside & ((steps < 4000) | (steps >= 6000))]).all()


@given(st.lists(FLOATS, max_size=30))
def test_every_finite_value_fits_the_axis(values: list[float]) -> None:
    scale = nice_scale(np.array(values, dtype=np.float64), 200.0, 10.0)
    for value in values:
        if math.isfinite(value) and abs(value) < 1e299:
            assert 9.99 <= float(scale(value)) <= 200.01
    ticks = scale.ticks(5)
    assert len(ticks) <= 12
    assert all(10.0 <= round(float(scale(tick.value)), 6) <= 200.0 for tick in ticks)


def test_ticks_are_round_and_labelled_correctly() -> None:
    labels = [tick.label for tick in Scale(0, 1234, 0, 1, whole=True).ticks(7)]
    assert labels == ["0", "200", "400", "600", "800", "1,000", "1,200"]
    assert [tick.label for tick in Scale(-0.1, 0.11, 0, 1).ticks(5)] == [
        "\N{MINUS SIGN}0.10",
        "\N{MINUS SIGN}0.05",
        "0.00",
        "0.05",
        "0.10",
    ]
    powers = [tick.label for tick in Scale(1e-4, 20, 0, 1, log=True).ticks(8)]
    assert powers == ["10⁻⁴", "10⁻³", "10⁻²", "10⁻¹", "1", "10"]
    assert [tick.value for tick in Scale(0, 0.5, 0, 1, whole=True).ticks(5)] == [0]


def test_an_axis_is_logarithmic_only_if_values_span_decades() -> None:
    decay = np.exp(-np.linspace(0, 9, 100))
    schedule = (1 + np.cos(np.linspace(0, 3.14, 100))) / 2  # a learning rate that ends near zero
    explosion = np.array([*[2.3] * 50, 1e7])
    assert nice_scale(decay, 0, 1).log
    assert nice_scale(explosion, 0, 1).log
    assert not nice_scale(schedule, 0, 1).log
    assert not nice_scale(-decay, 0, 1).log


def test_the_picture_decodes_to_the_colours_of_its_cells() -> None:
    indices = np.array([[NONE, NOT_FINITE, ZERO], [FIRST_LEVEL, 100, 255]], np.uint8)
    header, _, content = indexed_png(indices).partition(",")
    assert header == "data:image/png;base64"
    with Image.open(io.BytesIO(base64.b64decode(content))) as picture:
        assert np.array_equal(np.array(picture), indices)
        rgba = np.array(picture.convert("RGBA"))
    assert rgba[0, 0, 3] == 0
    assert (rgba[..., 3].ravel()[1:] == 255).all()
    assert "#" + bytes(rgba[1, 1, :3]).hex() == colour(100)


def test_the_colours_grow_evenly_lighter_without_red_and_grey() -> None:
    rgb = np.array([list(bytes.fromhex(colour(FIRST_LEVEL + n)[1:])) for n in range(LEVELS)])
    lightness = rgb @ [0.2126, 0.7152, 0.0722]
    assert (np.diff(lightness) > -0.51).all()
    assert lightness[-1] - lightness[0] > 180
    for special in (NOT_FINITE, ZERO):
        own = np.array(list(bytes.fromhex(colour(special)[1:])))
        assert np.abs(rgb - own).sum(axis=1).min() > 60


@pytest.mark.thorough
@given(st.text(), st.text())
def test_markup_parses_to_its_input(attribute: str, text: str) -> None:
    # Not assigned to characters, and not allowed in XML.
    name, content = (one.translate({0xFFFE: None, 0xFFFF: None}) for one in (attribute, text))
    found = ET.fromstring(element("text", content, data_name=name).encode())
    assert (found.text or "") == visible(content, keep="\n\t")
    # XML turns line breaks in attributes into spaces.
    assert found.get("data-name") == re.sub("[\n\t]", " ", visible(name, keep="\n\t"))


def test_a_path_breaks_at_nan() -> None:
    x = np.array([0.0, 1.0, 2.0, 3.0, 4.0])
    y = np.array([5.0, 6.0, np.nan, 7.0, 8.0])
    assert path_data(x, y) == "M0.0 5.0L1.0 6.0M3.0 7.0L4.0 8.0"


def test_numbers_are_formatted_for_people() -> None:
    assert [number(value) for value in (0.5, 12345.6, 4.1e-8, 1e9, -2e-9, math.nan, -math.inf)] == [
        "0.5",
        "1.235 \N{MULTIPLICATION SIGN} 10⁴",
        "4.1 \N{MULTIPLICATION SIGN} 10⁻⁸",
        "10⁹",
        "\N{MINUS SIGN}2 \N{MULTIPLICATION SIGN} 10⁻⁹",
        "NaN",
        "\N{MINUS SIGN}∞",
    ]
    assert [duration(s) for s in (0.0123, 3.21, 59.6, 61, 7260, 90_000)] == [
        "12 ms",
        "3.2 s",
        "1 min 0 s",
        "1 min 1 s",
        "2 h 1 min",
        "1 d 1 h",
    ]
    assert count(1, "step") == "1 step"
    assert count(1200, "step") == "1,200 steps"


def test_nested_evidence_becomes_rows() -> None:
    rows = evidence_rows({"sizes": {"a": 1e-8, "b": 2}, "steps": list(range(10)), "ok": True})
    assert rows == [
        ("sizes · a", "10⁻⁸"),
        ("sizes · b", "2"),
        ("steps", "0, 1, 2, 3, 4, 5, 6, 7, and 2 more"),
        ("ok", "yes"),
    ]
