"""Images, examples and points of a query are those of the tensors."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.queries.offering import event
from vinedresser.queries.answer import LARGEST_ANSWER, Answer
from vinedresser.queries.numpy_numeric import NumpyNumeric
from vinedresser.queries.query import Query
from vinedresser.queries.standing import StandingQuery


def answer(text: str, values: dict[str, Any], *, channels_last: bool = False) -> Answer:
    numeric = NumpyNumeric(channels_last=channels_last)
    (found,) = StandingQuery(Query.parse(text)).observe(event(values, numeric=numeric))
    assert len(found.to_json()) <= LARGEST_ANSWER
    back = Answer.from_json(found.to_json())
    assert (back.kind, back.value) == (found.kind, found.value)
    return found


def pixels(value: dict[str, Any]) -> NDArray[np.uint8]:
    shape = [value[axis] for axis in ("height", "width", "channels")]
    return np.frombuffer(base64.b64decode(value["data"]), np.uint8).reshape(shape)


def scaled(images: NDArray[Any]) -> Any:
    return np.round(255 * (images - images.min()) / (images.max() - images.min()))


def test_images_stand_side_by_side_from_black_to_white() -> None:
    batch = np.random.default_rng(0).normal(size=(7, 4, 6))
    grid = pixels(answer("images(inputs, 5)", {"inputs": batch}).value)
    assert grid.shape == (2 * 4, 3 * 6, 1)
    for place, expected in enumerate(scaled(batch[:5])):
        line, column = divmod(place, 3)
        tile = grid[line * 4 : line * 4 + 4, column * 6 : column * 6 + 6, 0]
        np.testing.assert_array_equal(tile, expected)
    assert not grid[4:, 12:].any()


def test_channels_are_where_the_framework_has_them() -> None:
    batch = np.random.default_rng(1).uniform(size=(4, 3, 5, 8))
    first = answer("images(inputs)", {"inputs": batch})
    last = answer("images(inputs)", {"inputs": np.moveaxis(batch, 1, -1)}, channels_last=True)
    assert first.value == last.value
    expected = scaled(batch)[0].transpose(1, 2, 0)
    np.testing.assert_array_equal(pixels(first.value)[:5, :8], expected)


def test_large_images_are_averaged_until_they_fit() -> None:
    batch = np.random.default_rng(2).uniform(size=(16, 3, 70, 100))
    grid = pixels(answer("images(inputs)", {"inputs": batch}).value)
    square = -(-70 // (grid.shape[0] // 4))
    shares = (batch[0] - batch.min()) / (batch.max() - batch.min())
    corner = shares[:, :square, :square].mean((1, 2))
    np.testing.assert_array_equal(grid[0, 0], np.round(255 * corner))
    # The last square is what is left of the image.
    rest = shares[:, (69 // square) * square :, (99 // square) * square :].mean((1, 2))
    height, width = grid.shape[0] // 4, grid.shape[1] // 4
    np.testing.assert_array_equal(grid[height - 1, width - 1], np.round(255 * rest))


def test_what_is_not_finite_is_black() -> None:
    batch = np.array([[[1.0, np.nan], [3.0, np.inf]]])
    grid = pixels(answer("images(inputs)", {"inputs": batch}).value)
    assert grid[..., 0].tolist() == [[0, 0], [255, 0]]


@pytest.mark.parametrize("pictured", [True, False])
def test_examples_have_labels_and_predictions(pictured: bool) -> None:
    rng = np.random.default_rng(3)
    inputs = rng.normal(size=(6, 1, 4, 4) if pictured else (6, 20))
    labels, scores = rng.integers(0, 3, 6), rng.normal(size=(6, 3))
    values = {"inputs": inputs, "labels": labels, "predictions": scores}
    found = answer("examples(inputs, labels, predictions, 4)", values)
    pairs = [(one["label"], one["prediction"]) for one in found.value]
    assert pairs == list(zip(labels[:4].tolist(), scores[:4].argmax(1).tolist(), strict=True))
    for place, one in enumerate(found.value):
        if pictured:
            expected = scaled(inputs[:4])[place, 0]
            np.testing.assert_array_equal(pixels(one["image"])[..., 0], expected)
        else:
            np.testing.assert_allclose(one["row"], inputs[place, :12], rtol=1e-5)


def test_a_condition_leaves_the_wrong_ones() -> None:
    values = {
        "inputs": np.arange(5.0)[:, None],
        "labels": np.array([0, 1, 1, 0, 1]),
        "predictions": np.array([0, 0, 1, 1, 1]),
    }
    text = "examples(inputs, labels, predictions) where correct(labels, predictions) == 0"
    assert answer(text, values).value == [
        {"label": 1, "prediction": 0, "row": [1.0]},
        {"label": 0, "prediction": 1, "row": [3.0]},
    ]


def test_points_are_pairs_evenly_chosen() -> None:
    x = np.arange(5_000.0)
    found = answer("scatter(a, b)", {"a": x, "b": x.reshape(50, 100) ** 2})
    assert found.value == {"x": x[::5].tolist(), "y": [float(f"{one:.6g}") for one in x[::5] ** 2]}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("images(labels)", "images: labels of the shape [6] has no images"),
        ("images(inputs, 0)", "images: the number must be a whole number from 1 to 64"),
        ("images(wide)", "images: wide of the shape [6, 2, 4, 4] has no images"),
        ("images(inputs) by class", "images cannot be grouped"),
        ("examples(inputs, few, few)", "needs a label and a prediction for each of 6 samples"),
        ("scatter(labels, few)", "scatter: 6 and 5 elements have no pairs"),
        ("scatter(labels, 1)", "y must be one tensor"),
    ],
)
def test_what_has_no_picture_is_said(text: str, told: str) -> None:
    values = {
        "inputs": np.zeros((6, 4, 4)),
        "wide": np.zeros((6, 2, 4, 4)),
        "labels": np.zeros(6, int),
        "few": np.zeros(5, int),
    }
    found = answer(text, values)
    assert found.ended
    assert told in str(found.error)
