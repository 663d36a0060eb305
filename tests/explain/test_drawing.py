"""`vinedresser show RUN NAME --draw FILE`: pictures of what was captured."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vinedresser.errors import ConfigError, UnknownStep, UnknownTensor
from vinedresser.explain.charts.tensor_images import mosaic, tile_images
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


@pytest.mark.parametrize(
    ("name", "step", "drawn"),
    [
        ("losses/loss", None, "curve"),
        ("gradients/fc.weight", None, "curve"),
        ("weights/conv.weight", None, "histogram"),
        ("weights/conv.weight", 3, "images"),
        ("weights/fc.weight", 3, "images"),
        ("inputs/net", 0, "images"),
        ("biases/fc.bias", 7, "histogram"),
    ],
)
def test_what_fits_is_drawn(
    run: Run, tmp_path: Path, name: str, step: int | None, drawn: str
) -> None:
    assert draw(run, name, tmp_path / "a.png", step=step) == drawn
    with Image.open(tmp_path / "a.png") as picture:
        assert picture.size == (960, 600)
        colours = picture.convert("RGB").getcolors(1 << 20)
    assert colours is not None
    assert len(colours) > 2


def test_the_same_run_gives_the_same_bytes(run: Run, tmp_path: Path) -> None:
    for name in ("a.svg", "b.svg", "a.png", "b.png"):
        draw(run, "losses/loss", tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    assert b"<svg" in (tmp_path / "a.svg").read_bytes()


def test_what_cannot_be_drawn_is_named(run: Run, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"a\.pdf: pictures are \.png or \.svg files"):
        draw(run, "losses/loss", tmp_path / "a.pdf")
    with pytest.raises(ConfigError, match=r"shape .4. is no picture; draw a histogram"):
        draw(run, "biases/fc.bias", tmp_path / "a.png", step=0, kind="images")
    with pytest.raises(ConfigError, match="say which, with --step"):
        draw(run, "weights/fc.weight", tmp_path / "a.png", kind="images")
    with pytest.raises(ConfigError, match="cannot be written: No such file or directory"):
        draw(run, "losses/loss", tmp_path / "no" / "a.png")
    with pytest.raises(UnknownTensor, match=r"did you mean weights/conv.weight"):
        draw(run, "weights/conv.weigt", tmp_path / "a.png")
    with pytest.raises(UnknownTensor, match=r"did you mean losses/loss"):
        draw(run, "losses/los", tmp_path / "a.png")
    with pytest.raises(UnknownStep, match="nearest steps"):
        draw(run, "weights/conv.weight", tmp_path / "a.png", step=99)
    with pytest.raises(UnknownStep, match="no statistics"):
        draw(run, "weights/fc.weight", tmp_path / "a.png", kind="curve")
    assert list(tmp_path.glob("*.png")) == []


def test_the_command_line_draws(run: Run, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "vinedresser", "show", run.path]
    target = str(tmp_path / "filters.png")
    arguments = ["weights/conv.weight", "--step", "2", "--draw", target]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{target}   images of weights/conv.weight\n"
    arguments = ["losses/loss", "--draw", target, "--as", "pie"]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--as pie: there are curve, histogram, images" in done.stderr


def test_filters_are_centred_one_by_one() -> None:
    filters = np.zeros((2, 1, 2, 2))
    filters[0, 0] = np.array([[-2, 0], [1, 2]])
    filters[1, 0] = np.array([[0.1, 0], [0, 0]])
    ((first, second),) = tile_images(filters, filters=True)
    np.testing.assert_allclose(first, [[0, 0.5], [0.75, 1]])
    np.testing.assert_allclose(second, [[1, 0.5], [0.5, 0.5]])


def test_a_batch_is_spread_as_a_whole_and_colours_stay_together() -> None:
    batch = np.arange(2 * 3 * 2 * 2, dtype=np.float32).reshape(2, 3, 2, 2)
    ((first, second),) = tile_images(batch)
    assert first.shape == (2, 2, 3)
    assert (first.min(), second.max()) == (0.0, 1.0)
    np.testing.assert_allclose(second[1, 0], np.array([14, 18, 22]) / 23)


def test_channels_last_is_the_same_picture() -> None:
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


def test_more_than_can_be_seen_is_cut() -> None:
    rows = tile_images(np.zeros((40, 30, 2, 2)))
    assert (len(rows), len(rows[0])) == (16, 16)
    rows = tile_images(np.zeros((1000, 2, 2)))
    assert sum(map(len, rows)) == 256


def test_what_is_not_finite_is_red() -> None:
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
