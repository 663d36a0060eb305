"""Columns describe each request by itself, with the numbers that one would compute by hand."""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vinedresser.errors import ConfigError
from vinedresser.serving import describe


def test_features_of_an_array_become_columns() -> None:
    rows = np.array([[1.5, np.nan], [2.0, 4.0]], np.float32)
    found = describe(rows, features=["age", "income"])
    assert found["age"].tolist() == [1.5, 2.0]
    assert found["income"].dtype == np.float64
    assert math.isnan(found["income"][0])
    assert [*describe(rows)] == ["x0", "x1"]


def test_a_frame_records_and_columns_give_the_same_columns() -> None:
    frame = pd.DataFrame({"age": [42.0, np.nan], "city": ["Bern", None]})
    records = [{"age": 42.0, "city": "Bern"}, {"city": None}]
    columns = {"age": [42, None], "city": ["Bern", None]}
    for inputs in (frame, records, columns):
        found = describe(inputs)
        assert found["city"].tolist() == ["Bern", None]
        assert found["age"].dtype == np.float64
        np.testing.assert_array_equal(found["age"], [42.0, np.nan])


def test_a_single_record_is_one_request() -> None:
    found = describe({"age": 42, "city": "Bern"}, 0.25)
    assert {name: values.tolist() for name, values in found.items()} == {
        "age": [42.0],
        "city": ["Bern"],
        "prediction": [0.25],
    }


def test_integers_of_arrays_stay_integers_and_those_of_lists_become_floats() -> None:
    assert describe({"n": np.array([1, 2], np.uint8)})["n"].dtype == np.int64
    assert describe({"n": [1, 2]})["n"].dtype == np.float64
    assert describe({"n": [True, False]})["n"].dtype == bool
    huge = np.array([2**63], np.uint64)
    assert describe({"n": huge})["n"].tolist() == [2.0**63]
    assert describe({"n": [10**30, None]})["n"][0] == 1e30


@pytest.mark.parametrize("channels_last", [False, True])
def test_images_are_described_by_statistics(channels_last: bool) -> None:
    images = np.random.default_rng(0).random((5, 3, 8, 9))
    given_images = np.moveaxis(images, 1, 3) if channels_last else images
    found = describe(given_images.astype(np.float32))
    np.testing.assert_allclose(found["mean"], images.mean((1, 2, 3)), rtol=1e-5)
    np.testing.assert_allclose(found["std"], images.std((1, 2, 3)), rtol=1e-5)
    np.testing.assert_allclose(found["minimum"], images.min((1, 2, 3)), rtol=1e-6)
    np.testing.assert_allclose(found["mean_2"], images[:, 2].mean((1, 2)), rtol=1e-5)
    squares = [
        (up + down + left + right - 4 * middle) ** 2
        for channel in images[1]
        for row in range(1, 7)
        for place in range(1, 8)
        for middle in [channel[row, place]]
        for up, down in [(channel[row - 1, place], channel[row + 1, place])]
        for left, right in [(channel[row, place - 1], channel[row, place + 1])]
    ]
    assert found["sharpness"][1] == pytest.approx(np.mean(squares), rel=1e-5)


def test_texts_are_described_by_their_length() -> None:
    found = describe(["so it goes", ""])
    assert found["characters"].tolist() == [10, 0]
    assert found["words"].tolist() == [3, 0]


def test_logits_and_probabilities_are_told_apart_row_by_row() -> None:
    logits = np.array([[0.0, math.log(3.0)], [5.0, 5.0]])
    probabilities = np.array([[0.25, 0.75], [0.9, 0.1]], np.float32)
    found = describe(np.zeros((2, 1)), logits)
    assert found["prediction"].tolist() == [1, 0]
    np.testing.assert_allclose(found["confidence"], [0.75, 0.5])
    mixed = describe(np.zeros((2, 1)), np.stack([logits[0], probabilities[1]]))
    np.testing.assert_allclose(mixed["confidence"], [0.75, 0.9], rtol=1e-6)
    forced = describe(np.zeros((2, 1)), probabilities, classify="logits")
    assert forced["confidence"][0] == pytest.approx(1 / (1 + math.exp(-0.5)), rel=1e-6)


def test_a_row_with_nan_has_no_prediction_and_harms_no_other() -> None:
    found = describe(np.zeros((2, 1)), np.array([[np.nan, 1.0], [1.0, 2.0]]))
    assert found["prediction"].tolist() == [-1, 1]
    assert math.isnan(found["confidence"][0])
    assert math.isfinite(found["confidence"][1])


@pytest.mark.parametrize(
    ("outputs", "prediction"),
    [
        (np.array([[0.5], [1.5]]), [0.5, 1.5]),
        ([3, 1], [3, 1]),
        (["yes", "no"], ["yes", "no"]),
        ({"prediction": ["a", "b"], "confidence": [0.5, 1.0]}, ["a", "b"]),
        ({"logits": np.eye(2), "hidden": np.zeros((2, 9))}, [0, 1]),
        ((np.eye(2), np.zeros((2, 3, 4))), [0, 1]),
    ],
)
def test_predictions(outputs: object, prediction: list[object]) -> None:
    assert describe(np.zeros((2, 1)), outputs)["prediction"].tolist() == prediction


def test_a_function_reads_predictions() -> None:
    found = describe(
        np.zeros((2, 1)),
        np.array([[0.2, 0.9], [0.6, 0.7]]),
        classify=lambda p: (p[:, 1] > 0.8, None),
    )
    assert found["prediction"].tolist() == [True, False]
    assert "confidence" not in found


@given(
    st.integers(1, 5),
    st.lists(st.integers(1, 4), min_size=1, max_size=4),
    st.sampled_from(["images", "rows", "records"]),
)
def test_any_batches_give_the_same_columns(seed: int, sizes: list[int], form: str) -> None:
    generator = np.random.default_rng(seed)
    count = sum(sizes)
    images = generator.normal(size=(count, 4, 5)).astype(np.float32)
    scores = generator.normal(size=(count, 3))
    texts = generator.choice(["a", "b"], count).tolist()
    inputs: Any = {
        "images": images,
        "rows": images.reshape(count, -1),
        "records": [{"t": text, "n": float(row)} for row, text in enumerate(texts)],
    }[form]
    whole = describe(inputs, scores)
    ends = np.cumsum(sizes)
    parts = [
        describe(inputs[end - size : end], scores[end - size : end])
        for end, size in zip(ends, sizes, strict=True)
    ]
    for name, values in whole.items():
        np.testing.assert_array_equal(values, np.concatenate([part[name] for part in parts]))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: describe(np.zeros((2, 3)), features=["a"]), r"1 names for inputs of .*\[2, 3\]"),
        (lambda: describe({"a": [1]}, features=["b"]), "no b, but a"),
        (
            lambda: describe(np.zeros((2, 3)), np.zeros(2), classify="logits"),
            "at least two classes",
        ),
        (
            lambda: describe(np.zeros((2, 3)), classify=cast(Any, "softmax")),
            "'softmax' is not one of",
        ),
        (lambda: describe(np.zeros((2, 3)), embedding=np.zeros((2, 3, 4))), "dimensions"),
    ],
)
def test_what_does_not_fit_is_refused(call: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        call()  # type: ignore[operator]


def test_different_numbers_of_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="outputs have 3 rows, the inputs 2"):
        describe(np.zeros((2, 3)), np.zeros(3))
    with pytest.raises(ValueError, match="a: 2, b: 1"):
        describe({"a": [1, 2], "b": [1]})
