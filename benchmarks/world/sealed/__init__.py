"""Families that nobody looks at while working on rules; `--sealed` runs them."""

from __future__ import annotations

from benchmarks.world.family import Family
from benchmarks.world.sealed import (
    actor_critic,
    counts,
    ctc,
    diffusion,
    factorisation,
    graph_nodes,
    localisation,
    mixture_density,
    normalizing_flow,
    point_sets,
    super_resolution,
    translation,
    word_vectors,
)

__all__ = ["FAMILIES"]

FAMILIES: dict[str, Family] = {
    "actor_critic": actor_critic.FAMILY,
    "counts": counts.FAMILY,
    "ctc": ctc.FAMILY,
    "diffusion": diffusion.FAMILY,
    "factorisation": factorisation.FAMILY,
    "graph_nodes": graph_nodes.FAMILY,
    "localisation": localisation.FAMILY,
    "mixture_density": mixture_density.FAMILY,
    "normalizing_flow": normalizing_flow.FAMILY,
    "point_sets": point_sets.FAMILY,
    "super_resolution": super_resolution.FAMILY,
    "translation": translation.FAMILY,
    "word_vectors": word_vectors.FAMILY,
}
