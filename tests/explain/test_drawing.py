"""`vinedresser show RUN NAME --draw FILE`: pictures of tensors and scalars."""

from __future__ import annotations

import base64
import io
import re
import xml.etree.ElementTree as ET
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from tests.cli.command_line import vinedresser
from tests.explain.reports.pages import attribute, axis_value
from vinedresser.errors import ConfigError, UnknownStep, UnknownTensor
from vinedresser.explain.charts.images import mosaic, tile_images
from vinedresser.explain.charts.palette import FIRST_LEVEL, LEVELS, NONE
from vinedresser.explain.drawing import draw
from vinedresser.store.reading.reader import Run
from vinedresser.testing.runs import make_run, step_record


@pytest.fixture
def run(tmp_path: Path) -> Run:
    generator = np.random.default_rng(0)
    records = [
        step_record(
            step,
            tensors={
                "weights/conv.weight": generator.standard_normal((6, 3, 5, 5)),
                "weights/fc.weight": generator.standard_normal((4, 9)),
                "biases/fc.bias": np.full(4, float(step)),
                "inputs/net": generator.random((4, 1, 8, 8)),
            },
            scalars={"losses/loss": 1 / (1 + step)},
            reductions={"gradients/fc.weight": {"l2": 0.1 * step, "max": 1.0}},
        )
        for step in range(8)
    ]
    records.append(step_record(8, mode="eval", scalars={"losses/loss": 0.3}))
    return make_run(tmp_path / "run", records)


DRAWN = [
    ("losses/loss", None, "curve"),
    ("gradients/fc.weight", None, "curve"),
    ("weights/conv.weight", None, "histogram"),
    ("weights/conv.weight", 3, "images"),
    ("weights/fc.weight", 3, "images"),
    ("inputs/net", 0, "images"),
    ("biases/fc.bias", 7, "histogram"),
]


def svg(run: Run, target: Path, name: str, **options: Any) -> ET.Element:
    """Draw an SVG file and return it, tags without their namespace."""
    draw(run, name, target, **options)
    text = target.read_text(encoding="utf-8")
    assert 'xmlns="http://www.w3.org/2000/svg"' in text
    assert "var(" not in text
    return ET.fromstring(text.replace(' xmlns="http://www.w3.org/2000/svg"', ""))


def paths(picture: ET.Element, kind: str) -> list[list[list[float]]]:
    """Return the points of the paths of a class inside the charts, pixels."""
    charts = [chart for chart in picture.iter("svg") if "chart" in chart.get("class", "")]
    lines = [one.get("d", "") for c in charts for one in c.iter("path") if one.get("class") == kind]
    return [
        [list(map(float, pair.split())) for pair in re.split("[ML]", line)[1:]] for line in lines
    ]


def pixels(href: str) -> NDArray[np.uint8]:
    with Image.open(io.BytesIO(base64.b64decode(href.partition(",")[2]))) as picture:
        return np.array(picture)


@pytest.mark.parametrize(("name", "step", "drawn"), DRAWN)
def test_the_default_drawing(
    run: Run, tmp_path: Path, name: str, step: int | None, drawn: str
) -> None:
    assert draw(run, name, tmp_path / "a.svg", step=step) == drawn
    picture = svg(run, tmp_path / "a.svg", name, step=step)
    where = "" if step is None else f" · train step {step}"
    assert picture.findtext("title") == f"made · {name}{where}"


def test_a_curve_passes_through_the_values_of_all_modes(run: Run, tmp_path: Path) -> None:
    picture = svg(run, tmp_path / "a.svg", "losses/loss")
    (chart,) = [one for one in picture.iter("svg") if one.get("class") == "chart"]
    (line,) = paths(picture, "trend")
    values = [axis_value(chart, "y", y) for _, y in line]
    assert values == pytest.approx([1 / (1 + step) for step in range(8)], abs=2e-3)
    assert [axis_value(chart, "x", x) for x, _ in line] == pytest.approx(range(8), abs=0.02)
    (point,) = [one for one in chart.iter("circle") if one.get("class") == "point eval"]
    assert axis_value(chart, "y", attribute(point, "cy")) == pytest.approx(0.3, abs=2e-3)
    assert axis_value(chart, "x", attribute(point, "cx")) == pytest.approx(8, abs=0.02)
    legend = [one.text for one in picture.iter("text") if one.get("class") == "caption"]
    assert legend == ["training", "evaluation"]


def test_every_statistic_of_a_tensor_has_a_curve(run: Run, tmp_path: Path) -> None:
    picture = svg(run, tmp_path / "a.svg", "gradients/fc.weight")
    captions = [one.text for one in picture.iter("text") if one.get("class") == "caption"]
    assert captions == ["training", "l2", "max"]
    rising, level = paths(picture, "trend")
    assert np.diff([y for _, y in rising]).max() < 0
    assert len({y for _, y in level}) == 1


def test_a_histogram_counts_the_elements(run: Run, tmp_path: Path) -> None:
    picture = svg(run, tmp_path / "a.svg", "weights/conv.weight", step=3, kind="histogram")
    (chart,) = [one for one in picture.iter("svg") if one.get("class") == "chart"]
    (bars,) = [one.get("d", "") for one in chart.iter("path")]
    heights = [float(one) for one in re.findall(r"V([\d.]+)H", bars)]
    counts, _ = np.histogram(run.tensor("weights/conv.weight").value(3), 64)
    assert [axis_value(chart, "y", height) for height in heights] == pytest.approx(
        counts[counts > 0], abs=0.1
    )


def test_a_histogram_over_steps_has_a_column_per_step(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    steps = [0, 10, 20, 40]
    values = {step: rng.standard_normal(500) * (1 + step) for step in steps}
    values[20][7] = np.nan
    records = [step_record(step, tensors={"weights/w": one}) for step, one in values.items()]
    run = make_run(tmp_path / "run", records)
    picture = svg(run, tmp_path / "a.svg", "weights/w")
    (image,) = picture.iter("image")
    cells = pixels(image.get("href", "")).astype(float)[::-1]
    finite = {step: one[np.isfinite(one)] for step, one in values.items()}
    edges = np.histogram_bin_edges(np.concatenate(list(finite.values())), 64)
    shares = np.stack([np.histogram(one, edges)[0] / one.size for one in finite.values()])
    # Columns lie at even distances: the gap between 20 and 40 is filled with the nearer of them.
    wanted = np.linspace(0, 40, cells.shape[1])
    nearest = np.abs(wanted[:, None] - np.array(steps)).argmin(axis=1)
    shown = 10 ** (-4 * (1 - (cells - FIRST_LEVEL) / (LEVELS - 1)))
    expected = shares[nearest].T
    assert ((cells == NONE) == (expected == 0)).all()
    np.testing.assert_allclose(shown[expected > 0], expected[expected > 0], rtol=0.03)
    (strokes,) = [
        one.get("d", "")
        for chart in picture.iter("svg")
        if chart.get("class") == "chart histograms"
        for one in chart.iter("path")
        if one.get("class") == "nonfinite"
    ]
    assert strokes.count("M") == 1


@pytest.mark.parametrize("name", ["weights/conv.weight", "weights/fc.weight", "inputs/net"])
def test_images_are_the_tensor(run: Run, tmp_path: Path, name: str) -> None:
    value = run.tensor(name).value(3)
    expected = mosaic(tile_images(value, filters=name == "weights/conv.weight"))
    draw(run, name, tmp_path / "a.png", step=3)
    with Image.open(tmp_path / "a.png") as picture:
        drawn = np.array(picture)
    factor = drawn.shape[0] // expected.shape[0]
    assert max(drawn.shape[:2]) >= 512
    np.testing.assert_array_equal(
        drawn, np.round(expected * 255).repeat(factor, axis=0).repeat(factor, axis=1)
    )
    (image,) = svg(run, tmp_path / "a.svg", name, step=3).iter("image")
    np.testing.assert_array_equal(pixels(image.get("href", "")), drawn)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e308, 5e-324, 0.0])
def test_no_value_breaks_a_drawing(tmp_path: Path, value: float) -> None:
    records = [
        step_record(
            step,
            tensors={"weights/w": np.array([[value, 1.0], [value, value]])},
            scalars={"losses/loss": value},
        )
        for step in range(3)
    ]
    run = make_run(tmp_path / "run", records)
    for name, step, kind in [
        ("losses/loss", None, "curve"),
        ("weights/w", None, "histogram"),
        ("weights/w", 1, "histogram"),
        ("weights/w", 1, "images"),
    ]:
        picture = svg(run, tmp_path / "a.svg", name, step=step, kind=kind)
        assert "nan" not in "".join(one.get("d", "") for one in picture.iter("path"))


def test_the_same_run_gives_the_same_bytes(run: Run, tmp_path: Path) -> None:
    for name, step, _ in DRAWN:
        for target in ("a.svg", "b.svg", "a.html"):
            draw(run, name, tmp_path / target, step=step)
        drawn = (tmp_path / "a.svg").read_text()
        assert drawn == (tmp_path / "b.svg").read_text()
        assert drawn.strip() in (tmp_path / "a.html").read_text()


def test_errors_name_the_problem(run: Run, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"a\.pdf: unknown picture format; use \.svg"):
        draw(run, "losses/loss", tmp_path / "a.pdf")
    with pytest.raises(ConfigError, match=r"a\.png: only images .* use \.svg for a curve"):
        draw(run, "losses/loss", tmp_path / "a.png")
    with pytest.raises(ConfigError, match=r"shape .4. is not an image; try --as histogram"):
        draw(run, "biases/fc.bias", tmp_path / "a.png", step=0, kind="images")
    with pytest.raises(ConfigError, match="choose it with --step"):
        draw(run, "weights/fc.weight", tmp_path / "a.png", kind="images")
    with pytest.raises(ConfigError, match="cannot be written: No such file or directory"):
        draw(run, "losses/loss", tmp_path / "no" / "a.svg")
    with pytest.raises(UnknownTensor, match=r"did you mean weights/conv.weight"):
        draw(run, "weights/conv.weigt", tmp_path / "a.png")
    with pytest.raises(UnknownTensor, match=r"did you mean losses/loss"):
        draw(run, "losses/los", tmp_path / "a.png")
    with pytest.raises(UnknownStep, match="nearest steps"):
        draw(run, "weights/conv.weight", tmp_path / "a.png", step=99)
    with pytest.raises(UnknownStep, match="no statistics"):
        draw(run, "weights/fc.weight", tmp_path / "a.svg", kind="curve")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.thorough
def test_the_command_line_draws(run: Run, tmp_path: Path) -> None:
    target = str(tmp_path / "filters.png")
    show = partial(vinedresser, "show", run.path)
    done = show("weights/conv.weight", "--step", "2", "--draw", target)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{target}   images of weights/conv.weight\n"
    done = show("losses/loss", "--draw", target, "--as", "pie")
    assert done.returncode == 2
    assert "--as pie: no such picture; choose curve, histogram, images" in done.stderr


def test_each_filter_is_scaled_around_the_middle() -> None:
    filters = np.zeros((2, 1, 2, 2))
    filters[0, 0] = np.array([[-2, 0], [1, 2]])
    filters[1, 0] = np.array([[0.1, 0], [0, 0]])
    ((first, second),) = tile_images(filters, filters=True)
    np.testing.assert_allclose(first, [[0, 0.5], [0.75, 1]])
    np.testing.assert_allclose(second, [[1, 0.5], [0.5, 0.5]])


def test_a_batch_is_scaled_as_a_whole() -> None:
    batch = np.arange(2 * 3 * 2 * 2, dtype=np.float32).reshape(2, 3, 2, 2)
    ((first, second),) = tile_images(batch)
    assert first.shape == (2, 2, 3)
    assert (first.min(), second.max()) == (0.0, 1.0)
    np.testing.assert_allclose(second[1, 0], np.array([14, 18, 22]) / 23)


def test_channels_last_gives_the_same_picture() -> None:
    generator = np.random.default_rng(1)
    batch = generator.random((3, 5, 4, 6))
    ours, theirs = tile_images(batch), tile_images(batch.transpose(0, 2, 3, 1), channels_last=True)
    for row, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(np.stack(row), np.stack(other))
    kernel = generator.standard_normal((4, 3, 5, 5))
    keras = kernel.transpose(2, 3, 1, 0)
    np.testing.assert_array_equal(
        mosaic(tile_images(kernel, filters=True)),
        mosaic(tile_images(keras, filters=True, channels_last=True)),
    )


def test_large_tensors_are_cut_to_16_by_16_tiles() -> None:
    rows = tile_images(np.zeros((40, 30, 2, 2)))
    assert (len(rows), len(rows[0])) == (16, 16)
    rows = tile_images(np.zeros((1000, 2, 2)))
    assert sum(map(len, rows)) == 256


def test_values_that_are_not_finite_are_red() -> None:
    picture = mosaic(tile_images(np.array([[0.0, np.nan], [np.inf, 1.0]])))
    assert picture.shape == (2, 2, 3)
    red = [0.898, 0.220, 0.231]
    assert picture[0, 1].tolist() == picture[1, 0].tolist() == red
    assert (picture[0, 0].tolist(), picture[1, 1].tolist()) == ([0, 0, 0], [1, 1, 1])


def test_all_values_in_one_frame(run: Run) -> None:
    frame = run.to_pandas()
    assert list(frame.columns) == ["name", "reduction", "mode", "step", "time", "value"]
    losses = frame[(frame["name"] == "losses/loss") & (frame["mode"] == "train")]
    assert losses["value"].tolist() == [1 / (1 + step) for step in range(8)]
    norms = frame[(frame["name"] == "gradients/fc.weight") & (frame["reduction"] == "l2")]
    assert norms["step"].tolist() == list(range(8))
    assert norms["value"].tolist() == [0.1 * step for step in range(8)]
    assert len(frame) == 9 + 16
    assert set(run.to_pandas("gradients")["name"]) == {"gradients/fc.weight"}
