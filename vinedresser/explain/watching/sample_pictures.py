"""Images and samples in answers to queries, as elements of a page."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vinedresser.errors import CorruptData
from vinedresser.explain.charts.images import colour_png, data_url
from vinedresser.explain.charts.svg import Svg, element
from vinedresser.explain.formatting import number

__all__ = ["image_element", "samples_element"]


_WIDTH, _SAMPLE_WIDTH = 240, 72


def image_element(value: Mapping[str, Any], width: int = _WIDTH) -> Svg:
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


def samples_element(value: Sequence[Mapping[str, Any]]) -> Svg:
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
        image_element(one["image"], _SAMPLE_WIDTH)
        if "image" in one
        else element("code", " ".join(number(value) for value in one["row"]))
    )
    caption = element("figcaption", told, class_="right" if right else "wrong")
    # A notebook has no style sheet of ours.
    return element("figure", shown, caption, style="display: inline-block; margin: 0 14px 10px 0")
