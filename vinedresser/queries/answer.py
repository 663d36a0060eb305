"""The answer to a query for one window."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cached_property
from typing import Any, Literal, get_args

from vinedresser.errors import CorruptData
from vinedresser.plain_text import visible
from vinedresser.store.json_values import DAMAGE, check_time, known_fields, shown, strict_json

__all__ = ["KINDS", "LARGEST_ANSWER", "Answer", "Kind"]

Kind = Literal[
    "scalar",
    "by",
    "vector",
    "histogram",
    "histograms",
    "confusion",
    "top",
    "text",
    "image",
    "examples",
    "points",
    "none",
]
KINDS: tuple[Kind, ...] = get_args(Kind)

# Bytes of JSON; a query with a larger result is disabled.
LARGEST_ANSWER = 64 * 1024
_NUMBERS = ("nan", "inf", "-inf")


@dataclass(frozen=True)
class Answer:
    """The answer to a query for one window of events of one rank.

    Attributes:
        query: text of the query.
        stream: name of the stream; the query's normalised text unless it was named.
        every: what closes a window, such as "100 steps".
        window: number of the window within the stream, from 0.
        since: first step in the window.
        step: last step in the window.
        mode: "train", "eval" or "predict".
        time: time of the last event, seconds since the epoch.
        events: number of events that were reduced.
        kind: type of `value`:

            - "scalar": a number.
            - "by": numbers by label, such as a layer.
            - "vector": a list of numbers.
            - "histogram": ``{"edges": [bins + 1], "counts": [bins]}``.
            - "histograms": histograms by label.
            - "confusion": ``{"classes": [n], "counts": [n][n]}``; rows are labels, columns
              predictions.
            - "top": a list of ``{"value": number, "at": label, "step": int}``, largest first.
            - "text": a string.
            - "image": ``{"height", "width", "channels", "data"}``, `data` being base64 of uint8
              [height, width, channels].
            - "examples": a list of ``{"label": int, "prediction": int}`` with an image as "image"
              or a list of numbers as "row".
            - "points": ``{"x": [n], "y": [n]}``.
            - "none": null, with an error.
        value: plain JSON values, except that numbers may be NaN or infinite (``"nan"``, ``"inf"``
            and ``"-inf"`` in JSON).
        dropped: number of windows left out since the previous answer, because of the rate limit or
            because the reader was too slow.
        thinned: number of steps left out since the previous answer, because all queries together
            had used up their share of the training's time; windows without any other are dropped.
        error: why there is no value, or why the query ended; None if all is well.
        ended: no further answers follow.
    """

    query: str
    stream: str
    every: str
    window: int
    since: int
    step: int
    mode: str
    rank: int
    time: float
    events: int
    kind: Kind
    value: Any
    dropped: int = 0
    thinned: int = 0
    error: str | None = None
    ended: bool = False

    def __repr__(self) -> str:
        told = self.error or shown(self.value)
        return f"Answer({visible(self.stream)}, steps {self.since} to {self.step}: {visible(told)})"

    def to_json(self, *, brief: bool = False) -> str:
        """Return the answer as one line of strict JSON.

        Args:
            brief: leave out what all answers of a stream share, and what is at its default; see
                `from_json`.
        """
        return self._brief if brief else self._text

    @cached_property
    def _text(self) -> str:
        return _encoded({name: getattr(self, name) for name in _FIELDS})

    @cached_property
    def _brief(self) -> str:
        # Computed once for all clients.
        usual = not self.dropped and not self.thinned and self.error is None and not self.ended
        numbers = (self.value, self.time)
        if usual and self.kind == "scalar" and all(map(_is_finite_float, numbers)):
            # Four times as fast as the encoder, which the training has to wait for.
            return (
                f'{{"window":{self.window},"since":{self.since},"step":{self.step},'
                f'"time":{self.time!r},"events":{self.events},"kind":"scalar",'
                f'"value":{self.value!r}}}'
            )
        document = {name: getattr(self, name) for name in _OWN}
        if not usual:
            document |= {name: getattr(self, name) for name in _DEFAULTS}
        return _encoded(document)

    @cached_property
    def _shared(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _SHARED}

    @property
    def fits(self) -> bool:
        """Whether its JSON has at most `LARGEST_ANSWER` bytes."""
        # The training waits for this: most answers are surely small, and their JSON is left to the
        # thread that sends it.
        words = len(self.query) + len(self.stream) + len(self.every) + len(self.error or "")
        numbers = 0 if self.kind == "scalar" else None
        if self.kind == "by":
            words += sum(map(len, self.value))
            numbers = len(self.value)
        if numbers is not None:
            most = _MOST_OTHER + _MOST_ESCAPED * words + _MOST_ENTRY * numbers
            if most <= LARGEST_ANSWER:
                return True
        return len(self.to_json()) <= LARGEST_ANSWER

    @classmethod
    def from_json(cls, text: str | bytes, first: Answer | None = None) -> Answer:
        """Return the answer from its JSON; unknown keys are ignored.

        Args:
            text: an answer as JSON, read from a socket or a store.
            first: an earlier answer of the stream, from which a brief one takes what it leaves out.

        Raises:
            CorruptData: it is not an answer: not JSON, too large, or a value that does not fit.
        """
        if len(text) > 2 * LARGEST_ANSWER:
            raise CorruptData(f"an answer of {len(text):,} bytes; at most {2 * LARGEST_ANSWER:,}")
        try:
            document = _decode(text.decode() if isinstance(text, bytes) else text)
            found = known_fields(cls, document)
            if first is not None:
                found = {**first._shared, **found}
            found["value"] = _VALUES[found["kind"]](found["value"])
            answer = cls(**found)
            check_time("time", answer.time)
        except DAMAGE as error:
            raise CorruptData(f"not an answer: {error}: {shown(text)}") from error
        numbers = (answer.window, answer.rank, answer.dropped, answer.thinned, answer.events)
        if min(numbers) < 0:
            raise CorruptData("not an answer: a number is negative")
        return answer


_FIELDS = tuple(field.name for field in fields(Answer))
_DEFAULTS = tuple(field.name for field in fields(Answer) if field.default is not MISSING)
# What all answers of a stream share.
_SHARED = ("query", "stream", "every", "mode", "rank")
_OWN = tuple(name for name in _FIELDS if name not in (*_SHARED, *_DEFAULTS))
_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode

# Bytes of JSON, at most: of a character (a pair of surrogates), of a number with its quotes and
# separators, and of names and numbers of the other fields.
_MOST_ESCAPED = 12
_MOST_ENTRY = 40
_MOST_OTHER = 1024


def _is_finite_float(value: object) -> bool:
    return type(value) is float and math.isfinite(value)


def _encoded(document: dict[str, Any]) -> str:
    try:
        return _encode(document)
    except ValueError:
        # Some numbers are not finite.
        return _encode(strict_json(document))


def _no_constant(word: str) -> float:
    raise ValueError(f"{word} is not strict JSON")


# Clients read thousands of answers per second.
_decode = json.JSONDecoder(parse_constant=_no_constant).decode


def _number(value: Any) -> float:
    if value in _NUMBERS:
        return float(value)
    if type(value) not in (int, float) or not math.isfinite(value):
        raise TypeError(f"{shown(value)} is not a number")
    return float(value)


def _numbers(value: Any) -> list[float]:
    if not isinstance(value, list):
        raise TypeError(f"{shown(value)} is not a list of numbers")
    return list(map(_number, value))


def _by_label(each: Callable[[Any], Any]) -> Callable[[Any], dict[str, Any]]:
    def read(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise TypeError(f"{shown(value)} is not a JSON object")
        return {label: each(entry) for label, entry in value.items()}

    return read


def _histogram(value: Any) -> dict[str, list[float]]:
    edges, counts = _numbers(value["edges"]), _numbers(value["counts"])
    if len(edges) != len(counts) + 1:
        raise TypeError(f"a histogram with {len(edges)} edges and {len(counts)} counts")
    return {"edges": edges, "counts": counts}


def _confusion(value: Any) -> dict[str, list[Any]]:
    classes, counts = value["classes"], [_numbers(row) for row in value["counts"]]
    if {len(row) for row in counts} - {len(classes)} or len(counts) != len(classes):
        raise TypeError(f"counts of {len(classes)} classes are not a square")
    return {"classes": [str(class_) for class_ in classes], "counts": counts}


def _top(value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, list):
        raise TypeError(f"{shown(value)} is not a list")
    return [
        {"value": _number(one["value"]), "at": str(one["at"]), "step": int(one["step"])}
        for one in value
    ]


def _image(value: Any) -> dict[str, Any]:
    shape = {key: int(value[key]) for key in ("height", "width", "channels")}
    if min(shape.values()) < 1 or not isinstance(value["data"], str):
        raise TypeError("an image without pixels")
    return {**shape, "data": value["data"]}


def _examples(value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, list):
        raise TypeError(f"{shown(value)} is not a list")
    return list(map(_example, value))


def _example(one: Any) -> dict[str, Any]:
    found: dict[str, Any] = {key: int(one[key]) for key in ("label", "prediction")}
    if "image" in one:
        return {**found, "image": _image(one["image"])}
    return {**found, "row": _numbers(one["row"])}


def _points(value: Any) -> dict[str, list[float]]:
    found = {axis: _numbers(value[axis]) for axis in ("x", "y")}
    if len(found["x"]) != len(found["y"]):
        raise TypeError(f"points with {len(found['x'])} x and {len(found['y'])} y")
    return found


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{shown(value)} is not a string")
    return value


def _none(value: Any) -> None:
    if value is not None:
        raise TypeError(f"{shown(value)} with the kind 'none'")


_VALUES: Mapping[str, Callable[[Any], Any]] = {
    "scalar": _number,
    "by": _by_label(_number),
    "vector": _numbers,
    "histogram": _histogram,
    "histograms": _by_label(_histogram),
    "confusion": _confusion,
    "top": _top,
    "text": _text,
    "image": _image,
    "examples": _examples,
    "points": _points,
    "none": _none,
}
