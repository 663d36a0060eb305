"""The visible families, in a package per kind of data."""

from __future__ import annotations

from benchmarks.world.families.decisions import (
    actor_critic,
    dqn,
    policy_gradient,
)
from benchmarks.world.families.generative import (
    autoencoder,
    diffusion,
    gan,
    mixture_density,
    normalizing_flow,
    vae,
)
from benchmarks.world.families.images import (
    digits_cnn,
    localisation,
    super_resolution,
)
from benchmarks.world.families.rows import (
    counts,
    distillation,
    factorisation,
    fine_tuning,
    multi_label,
    pinn,
    plateaus,
    ranking,
    regression,
    tabular_classification,
)
from benchmarks.world.families.series import (
    char_gpt,
    ctc,
    sequences,
    translation,
    word_vectors,
)
from benchmarks.world.families.structures import (
    contrastive,
    graph_nodes,
    point_sets,
)
from benchmarks.world.family import Family

__all__ = ["FAMILIES"]

FAMILIES: dict[str, Family] = {
    "actor_critic": actor_critic.FAMILY,
    "autoencoder": autoencoder.FAMILY,
    "char_gpt": char_gpt.FAMILY,
    "contrastive": contrastive.FAMILY,
    "counts": counts.FAMILY,
    "ctc": ctc.FAMILY,
    "diffusion": diffusion.FAMILY,
    "digits_cnn": digits_cnn.FAMILY,
    "distillation": distillation.FAMILY,
    "dqn": dqn.FAMILY,
    "factorisation": factorisation.FAMILY,
    "fine_tuning": fine_tuning.FAMILY,
    "gan": gan.FAMILY,
    "graph_nodes": graph_nodes.FAMILY,
    "localisation": localisation.FAMILY,
    "mixture_density": mixture_density.FAMILY,
    "multi_label": multi_label.FAMILY,
    "normalizing_flow": normalizing_flow.FAMILY,
    "pinn": pinn.FAMILY,
    "plateaus": plateaus.FAMILY,
    "point_sets": point_sets.FAMILY,
    "policy_gradient": policy_gradient.FAMILY,
    "ranking": ranking.FAMILY,
    "regression": regression.FAMILY,
    "sequences": sequences.FAMILY,
    "super_resolution": super_resolution.FAMILY,
    "tabular_classification": tabular_classification.FAMILY,
    "translation": translation.FAMILY,
    "vae": vae.FAMILY,
    "word_vectors": word_vectors.FAMILY,
}
