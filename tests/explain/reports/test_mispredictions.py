"""Wrong predictions are grouped by confusion cell, by decreasing loss."""

from __future__ import annotations

import base64
import io
import re
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from tests.explain.reports.pages import Page
from vinedresser.errors import ConfigError
from vinedresser.explain.reports.mispredictions import (
    mispredictions,
    mispredictions_png,
    write_mispredictions,
)
from vinedresser.store.reading.reader import Run
from vinedresser.testing.runs import make_run, step_record

LOSS = "CrossEntropyLoss"
# True and predicted class, and the logit of the prediction above the others, by row.
ROWS = [(0, 0, 1.0), (0, 1, 1.0), (0, 1, 3.0), (0, 1, 2.0), (2, 0, 5.0), (1, 1, 4.0), (2, 0, 9.0)]


def run_with(path: Path, *shape: int) -> Run:
    """Return a run of two evaluations: of correct rows, and of those above."""
    labels = np.array([truth for truth, _, _ in ROWS])
    logits = np.zeros((len(ROWS), 3))
    logits[np.arange(len(ROWS)), [guess for _, guess, _ in ROWS]] = [one for _, _, one in ROWS]
    inputs = np.arange(len(ROWS), dtype=np.float64).reshape(-1, *([1] * len(shape)))
    records = [
        step_record(
            step,
            mode="eval",
            tensors={
                f"labels/{LOSS}": labels,
                f"predictions/{LOSS}": predictions,
                "inputs/batch": inputs + np.zeros((len(ROWS), *shape)),
            },
        )
        for step, predictions in ((10, 9.0 * np.eye(3)[labels]), (20, logits))
    ]
    return make_run(path, records, classes=["cat", "<dog>", "eel"])


def values_of(picture: bytes) -> NDArray[np.uint8]:
    with Image.open(io.BytesIO(picture)) as image:
        return np.asarray(image.convert("L"))


def test_cells_and_their_order(tmp_path: Path) -> None:
    found = mispredictions(run_with(tmp_path / "run", 8, 8))
    page = Page(write_mispredictions(found, tmp_path / "page.html"))
    titles = re.findall(r"(\S+ predicted as \S+) (\d) rows, mean loss", page.text)
    assert titles == [("cat predicted as <dog>", "3"), ("eel predicted as cat", "2")]
    losses = [float(one) for one in re.findall(r"loss ([\d.]+), step 20", page.text)]
    expected = [np.log(2 + np.exp(one)) for one in (3.0, 2.0, 1.0, 9.0, 5.0)]
    np.testing.assert_allclose(losses, expected, rtol=5e-3)
    assert "Wrong 5 Correct 28.6%" in page.text
    assert "<dog>" not in page.html
    pictures = [dict(one)["src"] or "" for tag, one in page.tags if tag == "img"]
    shown = [values_of(base64.b64decode(picture.partition(",")[2])) for picture in pictures]
    assert len(shown) == 5
    # Each picture has one grey value.
    assert all(np.ptp(one) == 0 for one in shown)


def test_the_picture_has_a_row_for_each_cell(tmp_path: Path) -> None:
    found = mispredictions(run_with(tmp_path / "run", 8, 8))
    picture = values_of(mispredictions_png(found))
    side, gap = 64, 3
    assert picture.shape == (2 * side + gap, 3 * side + 2 * gap)
    rows = [
        [int(picture[32 + row * (side + gap), 32 + column * (side + gap)]) for column in range(3)]
        for row in range(2)
    ]
    # Rows 2, 3 and 1 of the batch, then 6 and 4, scaled within each cell; white is empty.
    assert rows == [[128, 255, 0], [255, 0, 255]]


def test_rows_of_features_and_another_step(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", 5)
    found = mispredictions(run)
    page = Page(write_mispredictions(found, tmp_path / "page.html"))
    assert "loss label predicted step 0 1 2 3 4" in page.text
    with pytest.raises(ConfigError, match=r"the inputs are not images.*use \.html"):
        mispredictions_png(found)
    early = mispredictions(run, step=10)
    assert (early.wrong, early.cells) == (0, [])
    assert "Wrong 0 Correct 100.0%" in Page(write_mispredictions(early, tmp_path / "b.html")).text
    with pytest.raises(ConfigError, match="no prediction is wrong"):
        mispredictions_png(early)
    with pytest.raises(ConfigError, match=r"at step 15; set \[capture.labels\]"):
        mispredictions(run, step=15)


def test_values_have_no_cells(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    records = []
    for step in range(8):
        labels, outputs = generator.normal(size=(2, 16, 1))
        records.append(
            step_record(
                step,
                scalars={"losses/MSELoss": float(((labels - outputs) ** 2).mean())},
                tensors={"labels/MSELoss": labels, "predictions/MSELoss": outputs},
            )
        )
    found = mispredictions(make_run(tmp_path / "run", records))
    assert found.wrong is None
    text = Page(write_mispredictions(found, tmp_path / "page.html")).text
    assert "highest loss 12 of 128 rows" in text
