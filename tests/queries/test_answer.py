"""Answers survive their JSON, and what is not an answer is refused."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vinedresser.errors import CorruptData
from vinedresser.queries.answer import KINDS, LARGEST_ANSWER, Answer, Kind

ANSWER = Answer(
    query="norm(gradients) by layer",
    stream="norms",
    every="100 steps",
    window=3,
    since=300,
    step=399,
    mode="train",
    rank=1,
    time=1.7e9,
    events=100,
    kind="by",
    value={"conv1": 1.5, "fc": math.inf},
    dropped=2,
)
HISTOGRAM = {"edges": [0.0, 1.0, 2.0], "counts": [3.0, 4.0]}
VALUES: dict[Kind, Any] = {
    "scalar": 0.25,
    "by": {"conv1": -1.5},
    "vector": [1.0, 2.0],
    "histogram": HISTOGRAM,
    "histograms": {"fc": HISTOGRAM},
    "confusion": {"classes": ["0", "1"], "counts": [[5.0, 1.0], [0.0, 2.0]]},
    "top": [{"value": 9.0, "at": "sample 3", "step": 12}],
    "text": "warm-up",
    "image": {"height": 1, "width": 2, "channels": 1, "data": "AAE="},
    "examples": [
        {"label": 1, "prediction": 0, "row": [0.5, 2.0]},
        {
            "label": 2,
            "prediction": 2,
            "image": {"height": 1, "width": 2, "channels": 1, "data": "AAE="},
        },
    ],
    "points": {"x": [0.0, 1.0], "y": [2.0, -3.0]},
    "none": None,
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_survives_its_json(kind: Kind) -> None:
    answer = replace(ANSWER, kind=kind, value=VALUES[kind])
    assert Answer.from_json(answer.to_json()) == answer
    assert "\n" not in answer.to_json()


def test_numbers_that_json_lacks_are_words_in_it() -> None:
    text = replace(ANSWER, kind="vector", value=[math.nan, -math.inf]).to_json()
    assert json.loads(text)["value"] == ["nan", "-inf"]
    first, second = Answer.from_json(text).value
    assert math.isnan(first)
    assert second == -math.inf


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ended", [False, True])
def test_a_brief_answer_takes_the_rest_from_an_earlier_one(kind: Kind, ended: bool) -> None:
    first = replace(ANSWER, error="an earlier error", window=0, dropped=7)
    for answer in (
        replace(ANSWER, kind=kind, value=VALUES[kind], ended=ended),
        replace(ANSWER, kind=kind, value=VALUES[kind], dropped=0, ended=ended),
    ):
        text = answer.to_json(brief=True)
        assert Answer.from_json(text, first) == answer
        assert ANSWER.query not in text
        with pytest.raises(CorruptData, match="not an answer"):
            Answer.from_json(text)


@pytest.mark.thorough
@given(
    value=st.floats() | st.integers(0, 9) | st.floats().map(np.float64),
    time=st.floats(0, 1e11) | st.integers(0, 9),
    step=st.integers(0, 10**9),
)
def test_a_brief_number_is_what_the_encoder_writes(value: Any, time: float, step: int) -> None:
    first = replace(ANSWER, kind="scalar", value=0.0, dropped=0)
    text = replace(first, value=value, time=time, since=step, step=step + 1).to_json(brief=True)
    written = value if math.isfinite(value) else str(float(value))
    document: dict[str, Any] = {
        "window": 3,
        "since": step,
        "step": step + 1,
        "time": time,
        "events": 100,
    }
    document |= {"kind": "scalar", "value": written}
    assert text == json.dumps(document, separators=(",", ":"))


@pytest.mark.thorough
@settings(max_examples=300)
@given(
    query=st.text(max_size=300),
    error=st.none() | st.text(max_size=50),
    value=st.floats() | st.dictionaries(st.text(max_size=200), st.floats(), max_size=30),
    copies=st.sampled_from([1, 50, 200]),
)
def test_an_answer_that_fits_is_never_too_large(
    query: str, error: str | None, value: Any, copies: int
) -> None:
    if isinstance(value, dict):
        value = {f"{label}{copy}": one for label, one in value.items() for copy in range(copies)}
    kind: Kind = "by" if isinstance(value, dict) else "scalar"
    answer = replace(ANSWER, query=query, stream=query, error=error, kind=kind, value=value)
    assert answer.fits == (len(answer.to_json()) <= LARGEST_ANSWER)


def changed(**values: Any) -> str:
    return json.dumps({**json.loads(ANSWER.to_json()), **values})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        "{}",
        '{"kind":"scalar"}',
        changed(kind="code"),
        changed(kind="scalar"),
        changed(kind="scalar", value=True),
        changed(kind="scalar", value=float("nan")),
        changed(kind="vector", value={"a": 1}),
        changed(kind="histogram", value={"edges": [1], "counts": [1]}),
        changed(kind="histogram", value=[]),
        changed(kind="confusion", value={"classes": ["a"], "counts": [[1, 2]]}),
        changed(kind="top", value=[{"value": 1}]),
        changed(kind="examples", value=[{"label": 1, "row": []}]),
        changed(kind="examples", value=[{"label": 1, "prediction": 0}]),
        changed(kind="examples", value=[{"label": 1, "prediction": 0, "image": {}}]),
        changed(kind="points", value={"x": [1], "y": []}),
        changed(kind="points", value=[1]),
        changed(kind="none", value=1),
        changed(step="4"),
        changed(rank=-1),
        changed(time=1e30),
        "[" * 100_000,
        changed(stream="x" * 200_000),
    ],
)
def test_anything_else_is_refused_with_one_clear_error(text: str) -> None:
    with pytest.raises(CorruptData, match="answer"):
        Answer.from_json(text)
