"""The picture of answers suits their kind, and shows their values."""

from __future__ import annotations

import base64
import re
from typing import Any

import numpy as np
import pytest

from vinedresser.errors import CorruptData
from vinedresser.explain.watching.answer_pictures import answer_picture
from vinedresser.queries.answer import Answer, Kind

HISTOGRAM = {"edges": [0.0, 1.0, 2.0], "counts": [1.0, 3.0]}


def answers(kind: Kind, *values: Any) -> list[Answer]:
    return [
        Answer("q", "q", "step", place, place, place, "train", 0, 1.0, 1, kind, value)
        for place, value in enumerate(values)
    ]


@pytest.mark.parametrize(
    ("kind", "values", "form"),
    [
        ("scalar", [1.0], "text"),
        ("scalar", [1.0, 2.0], "line"),
        ("by", [{"a": 1.0, "b": 2.0}], "bars"),
        ("by", [{"a": 1.0, "b": 2.0}] * 2, "line"),
        ("by", [{f"layer{n}": float(n) for n in range(20)}] * 2, "heat map"),
        ("by", [{}], "text"),
        ("vector", [[1.0, 2.0], [2.0, 3.0]], "vector"),
        ("vector", [[]], "text"),
        ("histogram", [HISTOGRAM] * 3, "ridge"),
        ("histogram", [{"edges": [0.0, 1.0], "counts": [0.0]}], "text"),
        ("histograms", [{"a": HISTOGRAM, "b": HISTOGRAM}], "ridge"),
        ("confusion", [{"classes": ["0", "1"], "counts": [[3.0, 1.0], [0.0, 4.0]]}], "confusion"),
        ("top", [[{"value": 2.0, "at": "[3]", "step": 0}]], "bars"),
        ("text", ["hello"], "text"),
        ("examples", [[{"label": 1, "prediction": 0, "row": [0.5]}]], "samples"),
        ("points", [{"x": [1.0, 2.0], "y": [3.0, 4.0]}], "scatter"),
        ("points", [{"x": [], "y": []}], "text"),
        ("none", [None], "none"),
    ],
)
def test_the_form_follows_the_answer(kind: Kind, values: list[Any], form: str) -> None:
    picture = answer_picture(answers(kind, *values))
    assert picture.form == form
    assert bool(picture.charts) != bool(picture.text)


def test_a_line_ends_at_the_newest_value() -> None:
    found = answers("by", {"a": 1.0, "b": 5.0}, {"a": 0.25, "b": 7.0})
    [(_, svg)] = answer_picture(found).charts
    assert dict(re.findall(r'data-name="(\w)" data-last="([^"]+)"', svg)) == {
        "a": "0.25",
        "b": "7.0",
    }


def test_bars_are_as_long_as_their_numbers() -> None:
    values = {"a": 1.0, "b": -2.0, "c": 4.0, "d": float("nan"), "e": 0.0}
    [(_, svg)] = answer_picture(answers("by", values)).charts
    bars = re.findall(r'width="([\d.]+)" height="13" class="bars" data-name="(\w)"', svg)
    lengths = {name: float(width) for width, name in bars}
    assert [*lengths] == ["a", "b", "c", "e"]
    assert lengths["e"] == 0
    assert lengths["b"] == pytest.approx(2 * lengths["a"], abs=0.02)
    assert lengths["c"] == pytest.approx(4 * lengths["a"], abs=0.02)
    assert "NaN" in svg


def test_numbers_at_the_ends_of_the_range_have_bars() -> None:
    [(_, svg)] = answer_picture(answers("by", {"a": 1.7e308, "b": -1.7e308})).charts
    assert "nan" not in svg.lower().replace("data-name", "")


def test_a_confusion_has_its_counts_and_share() -> None:
    found = answers("confusion", {"classes": ["0", "1"], "counts": [[3.0, 1.0], [0.0, 4.0]]})
    picture = answer_picture(found)
    assert "87.5% right" in picture.note
    assert "0 predicted as 1: 1 of 4 (25%)" in picture.charts[0][1]


def test_an_image_has_its_pixels() -> None:
    pixels = np.arange(4, dtype=np.uint8).tobytes()
    value = {"height": 2, "width": 2, "channels": 1, "data": base64.b64encode(pixels).decode()}
    picture = answer_picture(answers("image", value))
    assert picture.form == "image"
    assert "data:image/png;base64," in picture.charts[0][1]
    with pytest.raises(CorruptData, match="an image of 2 x 3 x 1 has 4 bytes"):
        answer_picture(answers("image", {**value, "width": 3}))


def test_text_of_a_run_is_escaped() -> None:
    nasty = "<script>alert(1)</script>"
    for found in (
        answers("by", {nasty: 1.0}),
        answers("by", {nasty: 1.0}, {nasty: 2.0}),
        answers("by", {f"{nasty}{n}": 1.0 for n in range(20)}, {nasty: 1.0}),
        answers("top", [{"value": 2.0, "at": nasty, "step": 0}]),
        answers("confusion", {"classes": [nasty, "1"], "counts": [[3.0, 1.0], [0.0, 4.0]]}),
        answers("histograms", {nasty: HISTOGRAM}),
    ):
        for _, svg in answer_picture(found).charts:
            assert "<script" not in svg


def test_the_reason_is_shown_until_there_is_a_value() -> None:
    broken = Answer("q", "q", "step", 0, 0, 0, "train", 0, 1.0, 0, "none", None, error="no such x")
    assert answer_picture([broken]).text == "no such x"
    assert answer_picture([*answers("scalar", 1.0), broken]).form == "text"


def test_samples_show_right_and_wrong_predictions() -> None:
    image = {"height": 1, "width": 2, "channels": 1, "data": base64.b64encode(b"\x00\xff").decode()}
    samples = [
        {"label": 3, "prediction": 5, "image": image},
        {"label": 2, "prediction": 2, "image": image},
    ]
    picture = answer_picture(answers("examples", samples))
    [(_, svg)] = picture.charts
    assert picture.note == "step 0; 1 of 2 right"
    assert re.findall(r'<figcaption class="(\w+)">([^<]+)<', svg) == [
        ("wrong", "3, predicted 5"),
        ("right", "2"),
    ]
    assert svg.count("data:image/png;base64,") == 2


def test_points_lie_where_their_numbers_are() -> None:
    x, y = [0.0, 1.0, 2.0, float("nan")], [0.0, 2.0, 4.0, 1.0]
    [(_, svg)] = answer_picture(answers("points", {"x": x, "y": y})).charts
    found = re.search(r'd="(M[^"]+)"', svg)
    assert found is not None
    dots = np.array([[float(one) for one in dot.split("h")[0].split()]
                     for dot in found[1].split("M")[1:]])  # fmt: skip
    assert len(dots) == 3
    # Equal steps along both axes, to the right and upwards.
    steps = np.diff(dots, axis=0)
    np.testing.assert_allclose(steps[0], steps[1], atol=0.11)
    assert steps[0][0] > 0 > steps[0][1]
