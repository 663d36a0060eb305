"""Saliency maps laid over their images."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.errors import SaliencyError
from vinedresser.explain.charts.images import NOT_FINITE, mosaic, tile_images

__all__ = ["overlay", "pixels_of"]

# The image is grey, so that colour is saliency; negative values occur without post-processing.
_POSITIVE, _NEGATIVE = (1.0, 0.42, 0.0), (0.0, 0.35, 1.0)
# The image shows through the strongest value, too.
_MOST_OPAQUE = 0.85
# A single pixel of extreme saliency would leave everything else invisible.
_STRONGEST = 99.5


def pixels_of(image: NDArray[Any], *, channels_last: bool = False) -> NDArray[np.uint8]:
    """Return an image as it is shown, uint8 [H, W, 3].

    Args:
        image: real [H, W], [C, H, W], or [H, W, C] if ``channels_last``; values are scaled from
            the least to the largest. Three channels are colours; of others the mean is shown.
        channels_last: the channels are the last axis.

    Raises:
        SaliencyError: the shape is not that of an image.
    """
    if image.ndim not in (2, 3) or 0 in image.shape:
        raise SaliencyError(f"an array of shape {list(image.shape)} is not an image [C, H, W]")
    channels = image if image.ndim == 3 else image[:, :, None] if channels_last else image[None]
    axis = -1 if channels_last else 0
    if channels.shape[axis] != 3:
        channels = channels.astype(np.float64).mean(axis, keepdims=True)
    ((tile,),) = tile_images(channels[None], channels_last=channels_last)
    return _bytes(mosaic([[tile]]))


def overlay(
    image: NDArray[Any],
    saliency_map: NDArray[np.floating[Any]],
    *,
    channels_last: bool = False,
) -> NDArray[np.uint8]:
    """Lay a saliency map over its image.

    Args:
        image: as for `pixels_of`; it is shown in grey.
        saliency_map: [H, W]; positive values are orange, negative ones blue, and those that are not
            finite red. The 99.5th percentile has the full colour; the least value has none, or zero
            if the map has signs.
        channels_last: the channels are the last axis.

    Returns:
        uint8 [H, W, 3].

    Raises:
        SaliencyError: the shapes do not fit.
    """
    shown = pixels_of(image, channels_last=channels_last).astype(np.float64) / 255
    if saliency_map.shape != shown.shape[:2]:
        raise SaliencyError(
            f"the map has the shape {list(saliency_map.shape)}; it must be that of the image, "
            f"{list(shown.shape[:2])}"
        )
    given = np.asarray(saliency_map, np.float64)
    finite = np.isfinite(given)
    values = np.where(finite, given, 0)
    magnitudes = np.abs(values - max(0.0, float(values.min())))
    # Nearly all pixels, or all, may be zero.
    top = float(np.percentile(magnitudes, _STRONGEST)) or float(magnitudes.max()) or 1.0
    opacity = _MOST_OPAQUE * np.clip(magnitudes / top, 0, 1)[:, :, None]
    colour = np.where(values[:, :, None] < 0, _NEGATIVE, _POSITIVE)
    grey = shown.mean(axis=2, keepdims=True)
    laid = (1 - opacity) * grey + opacity * colour
    return _bytes(np.where(finite[:, :, None], laid, NOT_FINITE))


def _bytes(picture: NDArray[np.float64]) -> NDArray[np.uint8]:
    return np.round(np.clip(picture, 0, 1) * 255).astype(np.uint8)
