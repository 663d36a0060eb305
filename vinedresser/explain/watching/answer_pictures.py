"""The answers to a query as a picture that suits their kind."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vinedresser.errors import CorruptData
from vinedresser.explain.charts.axes import Size
from vinedresser.explain.charts.frames import layer_profile, ridge_chart
from vinedresser.explain.charts.heat_map import heat_map
from vinedresser.explain.charts.histograms import joined_histograms
from vinedresser.explain.charts.images import colour_png, data_url
from vinedresser.explain.charts.label_bars import label_bars
from vinedresser.explain.charts.layer_map import layer_map
from vinedresser.explain.charts.lines import line_of, lines_chart
from vinedresser.explain.charts.scatter import hue, points_chart
from vinedresser.explain.charts.svg import Svg, element
from vinedresser.explain.formatting import number, shortened
from vinedresser.explain.reports.confusion import Confusion, confusion_chart
from vinedresser.queries.answer import Answer
from vinedresser.store.reading.series import Column
from vinedresser.store.reductions import Histogram

__all__ = ["AnswerPicture", "answer_picture"]

_SIZE = Size(920, 190)
_WIDTH = 920.0
# Labels that are lines; more are a heat map.
_MOST_LINES = 8
# Frames of a distribution or a vector: the newest, and those before it, dimmed.
_MOST_FRAMES = 8
_MOST_RIDGES = 6
_MOST_BARS = 40
_MOST_CLASSES = 16
_LONGEST_TEXT = 2_000
# Pixels on the page.
_COLUMN_WIDTH, _SAMPLE_WIDTH = 240, 72


@dataclass(frozen=True)
class AnswerPicture:
    """Answers as a picture.

    Attributes:
        form: "line", "bars", "heat map", "ridge", "vector", "confusion", "image", "samples",
            "scatter", "text" or "none".
        note: the newest answer in words.
        charts: the charts, each with a caption, which may be "".
        text: a text in place of charts; "" if there are charts.
        legend: colours and labels of the lines.
    """

    form: str
    note: str
    charts: Sequence[tuple[str, Svg]] = ()
    text: str = ""
    legend: Sequence[tuple[str, str]] = ()


def answer_picture(answers: Sequence[Answer]) -> AnswerPicture:
    """Return a picture of answers to one query, in the form that suits the newest one.

    Numbers by step are lines, or a heat map if they are of many labels; those of a single window
    are bars. Distributions and vectors are frames with a dimmed past.

    Args:
        answers: the answers in the order of their steps, at least one.

    Raises:
        CorruptData: an image does not have the size that it states.
    """
    newest = next((answer for answer in reversed(answers) if answer.kind != "none"), answers[-1])
    same = [answer for answer in answers if answer.kind == newest.kind]
    return _FORMS[newest.kind](same, _when(newest))


def _when(answer: Answer) -> str:
    if answer.since == answer.step:
        return f"step {answer.step:,}"
    return f"steps {answer.since:,} to {answer.step:,}"


def _scalars(answers: Sequence[Answer], when: str) -> AnswerPicture:
    value = number(answers[-1].value)
    if len(answers) == 1:
        return AnswerPicture("text", when, text=value)
    return _lines({"": [(answer.step, answer.value) for answer in answers]}, f"{value} at {when}")


def _lines(points: Mapping[str, Sequence[tuple[int, float]]], note: str) -> AnswerPicture:
    lines = {label: line_of(each) for label, each in points.items()}
    colours = {label: hue(place) for place, label in enumerate(lines)}
    steps = [step for each in points.values() for step, _ in each]
    svg = lines_chart(
        f"answers by step, {len(lines)} lines", lines, colours, _SIZE, (min(steps), max(steps))
    )
    legend = [(colour, label) for label, colour in colours.items() if label]
    return AnswerPicture("line", note, [("", svg)], legend=legend)


def _by_label(answers: Sequence[Answer], when: str) -> AnswerPicture:
    points: dict[str, list[tuple[int, float]]] = {}
    for answer in answers:
        for label, value in answer.value.items():
            points.setdefault(label, []).append((answer.step, value))
    if not points:
        return AnswerPicture("text", when, text="no labels")
    if len({answer.step for answer in answers}) == 1:
        return _bars(list(answers[-1].value.items()), when)
    if len(points) <= _MOST_LINES:
        return _lines(points, when)
    data = layer_map([_column(label, each) for label, each in points.items()])
    note = f"{when}; {len(points)} labels, colours by magnitude, red where not finite"
    return AnswerPicture("heat map", note, [("", heat_map(data, [], _WIDTH, "answers by step"))])


def _column(label: str, points: Sequence[tuple[int, float]]) -> Column:
    line = line_of(points)
    times = np.zeros(len(line.steps))
    return Column(label, line.steps, line.values, times, times.astype(np.uint8))


def _bars(pairs: Sequence[tuple[str, float]], when: str) -> AnswerPicture:
    if not pairs:
        return AnswerPicture("text", when, text="no labels")
    more = len(pairs) - _MOST_BARS
    note = f"{when}; {more} more are not drawn" if more > 0 else when
    return AnswerPicture("bars", note, [("", label_bars(pairs[:_MOST_BARS], _WIDTH, "answer"))])


def _top(answers: Sequence[Answer], when: str) -> AnswerPicture:
    return _bars([(one["at"] or "value", one["value"]) for one in answers[-1].value], when)


def _vectors(answers: Sequence[Answer], when: str) -> AnswerPicture:
    length = len(answers[-1].value)
    if not length:
        return AnswerPicture("text", when, text="no elements")
    shown = [answer for answer in answers if len(answer.value) == length][-_MOST_FRAMES:]
    names = [f"[{place}]" for place in range(length)]
    frames = np.array([one.value for one in shown])
    svg = layer_profile(frames, [one.step for one in shown], names, _SIZE, "vector")
    return AnswerPicture("vector", f"{when}; earlier ones are dimmed", [("", svg)])


def _histogram(answers: Sequence[Answer], when: str) -> AnswerPicture:
    return _ridges([("", [(answer.step, answer.value) for answer in answers])], when)


def _histograms(answers: Sequence[Answer], when: str) -> AnswerPicture:
    labels = [*answers[-1].value]
    found = [
        (label, [(answer.step, answer.value[label]) for answer in answers if label in answer.value])
        for label in labels[:_MOST_RIDGES]
    ]
    more = len(labels) - len(found)
    return _ridges(found, f"{when}; {more} more labels are not drawn" if more else when)


def _ridges(
    found: Sequence[tuple[str, Sequence[tuple[int, Mapping[str, Any]]]]], note: str
) -> AnswerPicture:
    charts = []
    for label, each in found:
        frames = [
            (step, Histogram(np.array(value["counts"]), np.array(value["edges"])))
            for step, value in each[-_MOST_FRAMES:]
        ]
        data = joined_histograms(label, frames, captured=len(frames))
        if data is not None:
            last = int(data.steps[-1])
            charts.append((label, ridge_chart(data, last, _MOST_FRAMES, _SIZE, label or "answer")))
    if not charts:
        return AnswerPicture("text", note, text="no finite elements")
    return AnswerPicture("ridge", f"{note}; earlier ones are dimmed", charts)


def _confusion(answers: Sequence[Answer], when: str) -> AnswerPicture:
    value = answers[-1].value
    counts = np.array(value["counts"]).reshape(len(value["classes"]), -1)
    if not counts.size:
        return AnswerPicture("text", when, text="no classes")
    total = counts.sum()
    wrong = counts.sum(1) + counts.sum(0) - 2 * np.diag(counts)
    shown = np.sort(np.argsort(-wrong, kind="stable")[:_MOST_CLASSES])
    data = Confusion(
        classes=tuple(value["classes"][place] for place in shown.tolist()),
        counts=counts[np.ix_(shown, shown)].astype(np.int64),
        total=counts.sum(1)[shown].astype(np.int64),
        right=float(np.trace(counts) / total) if total else 0.0,
        known=len(counts),
        left_out=0,
    )
    left = f"; {len(counts) - len(shown)} classes with fewer errors are not drawn"
    note = f"{when}; {data.right:.1%} right{left if len(counts) > len(shown) else ''}"
    return AnswerPicture("confusion", note, [("", confusion_chart(data))])


def _image(answers: Sequence[Answer], when: str) -> AnswerPicture:
    return AnswerPicture("image", when, [("", _image_element(answers[-1].value))])


def _examples(answers: Sequence[Answer], when: str) -> AnswerPicture:
    samples = answers[-1].value
    right = sum(sample["label"] == sample["prediction"] for sample in samples)
    note = f"{when}; {right} of {len(samples)} right"
    return AnswerPicture("samples", note, [("", _samples_element(samples))])


def _points(answers: Sequence[Answer], when: str) -> AnswerPicture:
    x, y = (np.array(answers[-1].value[axis]) for axis in ("x", "y"))
    if not len(x):
        return AnswerPicture("text", when, text="no points")
    note = f"{when}; {len(x):,} points"
    return AnswerPicture("scatter", note, [("", points_chart(x, y, _SIZE, "points"))])


def _text(answers: Sequence[Answer], when: str) -> AnswerPicture:
    return AnswerPicture("text", when, text=shortened(answers[-1].value, _LONGEST_TEXT))


def _none(answers: Sequence[Answer], _: str) -> AnswerPicture:
    return AnswerPicture("none", "", text=answers[-1].error or "no value")


_FORMS: Mapping[str, Callable[[Sequence[Answer], str], AnswerPicture]] = {
    "scalar": _scalars,
    "by": _by_label,
    "vector": _vectors,
    "histogram": _histogram,
    "histograms": _histograms,
    "confusion": _confusion,
    "top": _top,
    "text": _text,
    "image": _image,
    "examples": _examples,
    "points": _points,
    "none": _none,
}


def _image_element(value: Mapping[str, Any], width: int = _COLUMN_WIDTH) -> Svg:
    """Return the picture of an answer of the kind "image".

    Args:
        value: its value, see `vinedresser.queries.answer.Answer`.
        width: pixels on the page.

    Raises:
        CorruptData: it does not have the size that it states.
    """
    shape = height, across, channels = value["height"], value["width"], value["channels"]
    try:
        octets = base64.b64decode(value["data"], validate=True)
    except binascii.Error as error:
        raise CorruptData(f"an image that is not base64: {error}") from error
    if channels not in (1, 3) or len(octets) != math.prod(shape):
        raise CorruptData(
            f"an image of {height} x {across} x {channels} has {len(octets):,} bytes of pixels"
        )
    pixels = np.frombuffer(octets, np.uint8).reshape(shape) / 255.0
    picture = data_url(colour_png(np.broadcast_to(pixels, (height, across, 3))))
    return element("img", src=picture, alt="image", class_="picture", width=width)


def _samples_element(value: Sequence[Mapping[str, Any]]) -> Svg:
    """Return the samples of an answer of the kind "examples" with their classes.

    Args:
        value: its value, see `vinedresser.queries.answer.Answer`.

    Raises:
        CorruptData: an image does not have the size that it states.
    """
    return element("div", *map(_sample, value), class_="samples")


def _sample(one: Mapping[str, Any]) -> Svg:
    right = one["label"] == one["prediction"]
    told = str(one["label"]) if right else f"{one['label']}, predicted {one['prediction']}"
    shown = (
        _image_element(one["image"], _SAMPLE_WIDTH)
        if "image" in one
        else element("code", " ".join(number(value) for value in one["row"]))
    )
    caption = element("figcaption", told, class_="right" if right else "wrong")
    # A notebook has no style sheet of ours.
    return element("figure", shown, caption, style="display: inline-block; margin: 0 14px 10px 0")
