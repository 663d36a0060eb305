"""Families that nobody looks at while working on rules; `--sealed` runs them.

They were written without a look at the rules, and have not been judged.
"""

from __future__ import annotations

from benchmarks.world.family import Family
from benchmarks.world.sealed import (
    boltzmann,
    boosted_claims,
    early_exits,
    jigsaw,
    kalman,
    keras_inpainting,
    keras_wear,
    lightning_prototypes,
    operators,
    ordinal,
    positive_unlabelled,
    rotations,
    separation,
    shortest_paths,
    signals,
    spatial_transformer,
    steering,
    topics,
    unrolled,
)

__all__ = ["FAMILIES"]

FAMILIES: dict[str, Family] = {
    "boltzmann": boltzmann.FAMILY,
    "boosted_claims": boosted_claims.FAMILY,
    "early_exits": early_exits.FAMILY,
    "jigsaw": jigsaw.FAMILY,
    "kalman": kalman.FAMILY,
    "keras_inpainting": keras_inpainting.FAMILY,
    "keras_wear": keras_wear.FAMILY,
    "lightning_prototypes": lightning_prototypes.FAMILY,
    "operators": operators.FAMILY,
    "ordinal": ordinal.FAMILY,
    "positive_unlabelled": positive_unlabelled.FAMILY,
    "rotations": rotations.FAMILY,
    "separation": separation.FAMILY,
    "shortest_paths": shortest_paths.FAMILY,
    "signals": signals.FAMILY,
    "spatial_transformer": spatial_transformer.FAMILY,
    "steering": steering.FAMILY,
    "topics": topics.FAMILY,
    "unrolled": unrolled.FAMILY,
}
