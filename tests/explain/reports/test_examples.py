"""The confusion matrix and hard examples, compared with slow and obvious computations."""

from __future__ import annotations

import base64
import io
import re
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from sklearn.metrics import confusion_matrix

from tests.explain.reports.pages import Page
from vinedresser.explain.reports.report import write_report
from vinedresser.testing.runs import make_run, step_record

LOSS = "CrossEntropyLoss"


def page_of(
    directory: Path,
    labels: NDArray[np.int64],
    logits: NDArray[np.float32],
    inputs: NDArray[np.float32],
    first: NDArray[np.float32] | None = None,
    **info: object,
) -> Page:
    """Return the report of a run of batches, [batches, rows, ...]; `first` is another input."""
    records = [
        step_record(
            5 * n,
            tensors={
                f"labels/{LOSS}": labels[n],
                f"predictions/{LOSS}": logits[n],
                **({} if first is None else {"inputs/batch[0]": first[n]}),
                "inputs/batch": inputs[n],
            },
        )
        for n in range(len(labels))
    ]
    run = make_run(directory / "run", records, **info)
    return Page(write_report(run, directory / "report.html"))


def made(*shape: int) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.float32]]:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(6, 20, 4)).astype(np.float32)
    inputs = rng.random((6, 20, *shape)).astype(np.float32)
    return rng.integers(0, 4, (6, 20)), logits, inputs


def losses_of(labels: NDArray[np.int64], logits: NDArray[np.float32]) -> NDArray[np.float64]:
    wide = logits.astype(np.float64)
    right = np.take_along_axis(wide, labels[..., None], -1)[..., 0]
    return np.asarray(np.log(np.exp(wide).sum(-1)) - right)


def test_the_cells_are_the_confusion_matrix(tmp_path: Path) -> None:
    labels, logits, inputs = made(3)
    page = page_of(tmp_path, labels, logits, inputs, classes=["a", "<b>", "c", "d"])
    chart = page.figure("chart confusion")
    expected = confusion_matrix(labels.ravel(), logits.argmax(-1).ravel())
    names = ["a", "<b>", "c", "d"]
    found = np.zeros((4, 4), int)
    for title in [node.text or "" for node in chart.iter("title")]:
        parts = re.fullmatch(r"(.+) predicted as (.+): (\d+) of (\d+) .*", title)
        assert parts is not None
        row, column = names.index(parts[1]), names.index(parts[2])
        found[row, column] = int(parts[3])
        assert int(parts[4]) == expected[row].sum()
    np.testing.assert_array_equal(found, expected)
    assert "120 training rows, steps 0 to 25" in page.text


def test_rows_with_the_highest_loss_come_with_the_names_of_the_features(tmp_path: Path) -> None:
    labels, logits, inputs = made(3)
    page = page_of(tmp_path, labels, logits, inputs, features=["height", "width", "<i>"])
    losses = losses_of(labels, logits)
    for place in np.argsort(-losses.ravel())[:8]:
        batch, row = divmod(int(place), 20)
        values = " ".join(f"{value:.3g}" for value in inputs[batch, row])
        assert re.search(
            rf"{losses[batch, row]:.3g} {labels[batch, row]} {logits[batch, row].argmax()} "
            rf"\(\d+%\) {5 * batch} {re.escape(values)}",
            page.text,
        )
    assert "loss label predicted step height width <i>" in page.text


def test_an_input_without_columns_is_not_shown(tmp_path: Path) -> None:
    """Libraries for tables pass the categorical columns first, of which there may be none."""
    labels, logits, inputs = made(3)
    names = ["height", "width", "depth"]
    page = page_of(tmp_path, labels, logits, inputs, inputs[..., :0], features=names)
    assert all(name in page.text for name in names)


def test_inputs_that_look_like_images_are_shown_as_such(tmp_path: Path) -> None:
    labels, logits, inputs = made(1, 12, 10)
    page = page_of(tmp_path, labels, logits, inputs)
    sources = [attributes["src"] or "" for tag, attributes in page.tags if tag == "img"]
    order = np.argsort(-losses_of(labels, logits).ravel())[:8]
    chosen = inputs.reshape(-1, 12, 10)[order].astype(np.float64)
    scaled = (chosen - chosen.min()) / (chosen.max() - chosen.min())
    assert len(sources) == 8
    for source, expected in zip(sources, scaled, strict=True):
        with Image.open(io.BytesIO(base64.b64decode(source.partition(",")[2]))) as picture:
            shown = np.array(picture)
        assert shown.shape == (12, 10, 3)
        np.testing.assert_allclose(shown[..., 0] / 255, expected, atol=0.003)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite_break_nothing(tmp_path: Path, value: float) -> None:
    labels, logits, inputs = made(3)
    logits[3, 7] = value
    inputs[3, 7, 1] = value
    page = page_of(tmp_path, labels, logits, inputs)
    assert re.search(rf"NaN {labels[3, 7]} not finite 15", page.text)
    assert "1 batch record left out: predictions not finite" in page.text


def test_the_classes_with_the_most_errors_are_shown(tmp_path: Path) -> None:
    labels, _, inputs = made(3)
    logits = np.zeros((6, 20, 500), np.float32)
    logits[..., 3] = 1
    page = page_of(tmp_path, labels, logits, inputs)
    assert "the 16 of 500 classes with the most errors" in page.text
    titles = [node.text or "" for node in page.figure("chart confusion").iter("title")]
    assert f"0 predicted as 3: {(labels == 0).sum()} of {(labels == 0).sum()} (100%)" in titles
