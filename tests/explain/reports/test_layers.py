"""Updates and activations in the report show the captured values."""

from __future__ import annotations

import base64
import io
import math
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from tests.explain.reports.pages import Page, attribute, make_run
from vinedresser.explain.charts.histograms import histogram_map
from vinedresser.explain.charts.palette import FIRST_LEVEL, LEVELS, NONE
from vinedresser.explain.reports.report import write_report
from vinedresser.store.reading.reader import Run
from vinedresser.store.step_record import StepRecord
from vinedresser.testing.runs import step_record

_DIGITS = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")


def report(run: Run, directory: Path) -> Page:
    return Page(write_report(run, directory / "report.html"))


def updates(step: int, ratios: dict[str, float], weight: float = 4.0) -> StepRecord:
    """Return a record of updates with these ratios to their weights."""
    statistics = {f"weights/{name}": {"l2": weight} for name in ratios}
    statistics |= {f"updates/{name}": {"l2": ratio * weight} for name, ratio in ratios.items()}
    return step_record(step, reductions=statistics)


def log_values(chart: ET.Element, pixels: list[float]) -> NDArray[np.float64]:
    """Return values at heights, read off the labelled powers of ten."""
    ticks = [node for node in chart.iter("text") if node.get("class") == "tick y"]
    powers = []
    for node in ticks:
        text = node.text or ""
        powers.append(
            float(text[2:].translate(_DIGITS)) if len(text) > 2 else math.log10(float(text))
        )
    slope, offset = np.polyfit([attribute(node, "y") - 3.5 for node in ticks], powers, 1)
    return np.asarray(10 ** (slope * np.array(pixels) + offset))


def heights(line: ET.Element) -> list[float]:
    return [float(pair.split()[1]) for pair in re.split("[ML]", line.get("d", ""))[1:]]


def lines(chart: ET.Element) -> dict[str, ET.Element]:
    """Return the lines of the layers by the layer's name."""
    found = [node for node in chart.iter("path") if node.get("class", "").startswith("layer")]
    return {(node.findtext("title") or "").partition(":")[0]: node for node in found}


def test_the_update_ratios_are_drawn_with_the_usual_band(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    expected = {
        "a.weight": 10 ** rng.uniform(-5, -4, 30),
        "b.weight": 10 ** rng.uniform(-2, -1, 30),
    }
    records = [
        updates(20 * n, {name: float(values[n]) for name, values in expected.items()})
        for n in range(30)
    ]
    # A bias has an update, and no weight to hold it against.
    records[0].reductions["updates/a.bias"] = {"l2": 1.0}
    page = report(make_run(tmp_path / "run", records), tmp_path)
    (chart,) = page.all_figures("chart layers")
    drawn = lines(chart)
    assert set(drawn) == set(expected)
    for name, values in expected.items():
        np.testing.assert_allclose(log_values(chart, heights(drawn[name])), values, rtol=0.01)
    assert drawn["a.weight"].get("class") == "layer lowest"
    assert drawn["b.weight"].get("class") == "layer highest"
    (band,) = [node for node in chart.iter("rect") if node.get("class") == "band"]
    top = attribute(band, "y")
    ends = log_values(chart, [top, top + attribute(band, "height")])
    np.testing.assert_allclose(ends, [2e-3, 2e-4], rtol=0.02)
    assert "lowest a.weight, highest b.weight" in page.text


def test_ratios_that_are_not_finite_leave_gaps(tmp_path: Path) -> None:
    values = [1e-3, math.nan, 1e-3, math.inf, 0.0, 1e-3, 1e-3]
    records = [updates(step, {"a": value}) for step, value in enumerate(values)]
    records.append(updates(7, {"a": 1e-3}, weight=0.0))
    page = report(make_run(tmp_path / "run", records), tmp_path)
    (chart,) = page.all_figures("chart layers")
    assert lines(chart)["a"].get("d", "").count("M") == 3
    assert "not finite 3 times" in page.text


@pytest.mark.thorough
def test_a_thousand_layers_are_thinned_out_with_a_note(tmp_path: Path) -> None:
    names = [f"blocks.{number}.weight" for number in range(1000)]
    records = [
        updates(step, {name: 1e-3 * (1 + n) for n, name in enumerate(names)}) for step in range(150)
    ]
    page = report(make_run(tmp_path / "run", records), tmp_path)
    (chart,) = page.all_figures("chart layers")
    drawn = lines(chart)
    assert len(drawn) <= 14
    assert {names[0], names[-1]} <= set(drawn)
    assert len(heights(drawn[names[0]])) == 120
    assert len(ET.tostring(chart)) < 60_000
    assert (
        "1,000 layers · lines of 12 and the extremes · 150 captured steps · 120 drawn" in page.text
    )


def test_the_histograms_match_the_elements(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    batches = [rng.normal(0.1 * n, 1 + 0.1 * n, 20_000) for n in range(12)]
    records = []
    for n, elements in enumerate(batches):
        counts, edges = np.histogram(elements, 64)
        packed = np.concatenate([[edges[0], edges[-1]], counts]).astype(np.float64)
        records.append(step_record(10 * n, tensors={"outputs/tanh()|histogram": packed}))
    run = make_run(tmp_path / "run", records)
    data = histogram_map(run, "outputs/tanh()")
    assert data is not None
    assert data.steps.tolist() == list(range(0, 120, 10))
    inner = data.edges.copy()
    inner[0], inner[-1] = -np.inf, np.inf
    expected = np.stack([np.histogram(batch, inner)[0] / batch.size for batch in batches], axis=1)
    # Elements are taken to be spread evenly within each of the 64 bins that were captured.
    np.testing.assert_allclose(data.shares, expected, atol=0.012)
    np.testing.assert_allclose(data.shares.sum(axis=0), 1)
    page = report(run, tmp_path)
    (image,) = page.figure("chart histograms").iter("image")
    with Image.open(io.BytesIO(base64.b64decode(image.get("href", "").partition(",")[2]))) as one:
        cells = np.array(one).astype(float)[::-1]
    shown = 10 ** (-4 * (1 - (cells - FIRST_LEVEL) / (LEVELS - 1)))
    seen = data.shares > 1e-4
    np.testing.assert_allclose(shown[seen], data.shares[seen], rtol=0.03)


def test_histograms_without_finite_elements_or_of_one_value_are_drawn(tmp_path: Path) -> None:
    nothing = np.array([math.nan, math.nan, *[0] * 64])
    zeros = np.array([0.0, 0.0, *[0] * 63, 500])
    records = [
        step_record(n, tensors={"outputs/relu()|histogram": packed})
        for n, packed in enumerate([zeros, nothing, zeros])
    ]
    run = make_run(tmp_path / "run", records)
    data = histogram_map(run, "outputs/relu()")
    assert data is not None
    assert np.isnan(data.shares[:, 1]).all()
    (place,) = np.flatnonzero(data.shares[:, 0])
    assert data.edges[place] <= 0 <= data.edges[place + 1]
    (image,) = report(run, tmp_path).figure("chart histograms").iter("image")
    with Image.open(io.BytesIO(base64.b64decode(image.get("href", "").partition(",")[2]))) as one:
        assert set(np.array(one)[:, 1].tolist()) == {NONE}


def test_without_histograms_the_statistics_are_drawn(tmp_path: Path) -> None:
    records = [
        step_record(step, reductions={"outputs/relu()": {"zero_share": 0.01 * step}})
        for step in range(50)
    ]
    page = report(make_run(tmp_path / "run", records), tmp_path)
    (chart,) = page.all_figures("chart layers")
    assert "Share of zeros" in page.text
    pixels = heights(lines(chart)["relu()"])
    np.testing.assert_allclose(
        np.diff(pixels), np.diff(pixels).mean(), atol=0.11, err_msg="a straight line"
    )


def test_data_that_was_not_captured_is_named(tmp_path: Path) -> None:
    page = report(make_run(tmp_path / "run", [step_record(0, scalars={"losses/l": 1.0})]), tmp_path)
    for words in (
        "Updates and weights were not both captured",
        "Activations were not captured",
        "[capture.labels] and [capture.predictions] every = 5, rows = 64",
        "Learning rate and timing were not captured",
    ):
        assert words in page.text
    assert not page.all_figures("chart layers")


def test_varying_settings_are_drawn_and_constant_ones_listed(tmp_path: Path) -> None:
    records = [
        step_record(
            step,
            scalars={
                "timing/step": 0.1 + 0.01 * (step % 3),
                "optimizer_state/momentum": 0.9,
                "optimizer_state/lr": 0.1 * 0.9**step,
                "metrics/accuracy": step / 50,
            },
        )
        for step in range(50)
    ]
    page = report(make_run(tmp_path / "run", records), tmp_path)
    assert [chart.get("aria-label") for chart in page.charts()] == [
        "accuracy by step",
        "optimizer_state/lr by step",
        "timing/step by step",
    ]
    assert "times in seconds · constant: optimizer_state/momentum 0.9" in page.text


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e308, 5e-324, -1.0])
def test_no_value_breaks_a_chart_of_layers(tmp_path: Path, value: float) -> None:
    statistics = {"outputs/relu()": {"zero_share": value, "std": value}}
    records = [step_record(step, reductions=statistics) for step in range(3)]
    page = report(make_run(tmp_path / "run", records), tmp_path)
    assert len(page.all_figures("chart layers")) == 2
    assert "nan" not in "".join(ET.tostring(one, "unicode") for one in page.figures).lower()
