"""Families that nobody looks at while working on rules; `--sealed` runs them.

They were written without a look at the rules, and have not been judged.
"""

from __future__ import annotations

from benchmarks.world.family import Family
from benchmarks.world.sealed import (
    anchors,
    boosted_intervals,
    causal_effects,
    colourisation,
    compression,
    coordinates,
    equilibrium,
    evolved_policy,
    gaussian_process,
    hypernetwork,
    keras_crowds,
    keras_waves,
    lightning_tumours,
    neural_process,
    pixel_by_pixel,
    pointers,
    reservoir,
    spiking,
    splines,
)

__all__ = ["FAMILIES"]

FAMILIES: dict[str, Family] = {
    "anchors": anchors.FAMILY,
    "boosted_intervals": boosted_intervals.FAMILY,
    "causal_effects": causal_effects.FAMILY,
    "colourisation": colourisation.FAMILY,
    "compression": compression.FAMILY,
    "coordinates": coordinates.FAMILY,
    "equilibrium": equilibrium.FAMILY,
    "evolved_policy": evolved_policy.FAMILY,
    "gaussian_process": gaussian_process.FAMILY,
    "hypernetwork": hypernetwork.FAMILY,
    "keras_crowds": keras_crowds.FAMILY,
    "keras_waves": keras_waves.FAMILY,
    "lightning_tumours": lightning_tumours.FAMILY,
    "neural_process": neural_process.FAMILY,
    "pixel_by_pixel": pixel_by_pixel.FAMILY,
    "pointers": pointers.FAMILY,
    "reservoir": reservoir.FAMILY,
    "spiking": spiking.FAMILY,
    "splines": splines.FAMILY,
}
