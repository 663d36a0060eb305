"""Families that nobody looks at while working on rules; `--sealed` runs them.

They were written without a look at the rules, and have not been judged.
"""

from __future__ import annotations

from benchmarks.world.family import Family
from benchmarks.world.sealed import (
    adapters,
    boosted_search,
    image_text,
    keras_clicks,
    keras_denoising,
    keypoints,
    lightning_prices,
    logged_bandit,
    meta_learning,
    mixed_clothes,
    multi_task,
    optical_flow,
    point_process,
    quantised,
    speakers,
    state_space,
    tagging,
    twin_critics,
    vector_codes,
)

__all__ = ["FAMILIES"]

FAMILIES: dict[str, Family] = {
    "adapters": adapters.FAMILY,
    "boosted_search": boosted_search.FAMILY,
    "image_text": image_text.FAMILY,
    "keras_clicks": keras_clicks.FAMILY,
    "keras_denoising": keras_denoising.FAMILY,
    "keypoints": keypoints.FAMILY,
    "lightning_prices": lightning_prices.FAMILY,
    "logged_bandit": logged_bandit.FAMILY,
    "meta_learning": meta_learning.FAMILY,
    "mixed_clothes": mixed_clothes.FAMILY,
    "multi_task": multi_task.FAMILY,
    "optical_flow": optical_flow.FAMILY,
    "point_process": point_process.FAMILY,
    "quantised": quantised.FAMILY,
    "speakers": speakers.FAMILY,
    "state_space": state_space.FAMILY,
    "tagging": tagging.FAMILY,
    "twin_critics": twin_critics.FAMILY,
    "vector_codes": vector_codes.FAMILY,
}
