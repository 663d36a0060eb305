"""The visible families."""

from __future__ import annotations

from benchmarks.world.families import (
    autoencoder,
    char_gpt,
    contrastive,
    digits_cnn,
    distillation,
    dqn,
    fine_tuning,
    gan,
    multi_label,
    pinn,
    plateaus,
    policy_gradient,
    ranking,
    regression,
    sequences,
    tabular_classification,
    vae,
)
from benchmarks.world.family import Family

__all__ = ["FAMILIES"]

FAMILIES: dict[str, Family] = {
    "autoencoder": autoencoder.FAMILY,
    "char_gpt": char_gpt.FAMILY,
    "contrastive": contrastive.FAMILY,
    "digits_cnn": digits_cnn.FAMILY,
    "distillation": distillation.FAMILY,
    "dqn": dqn.FAMILY,
    "fine_tuning": fine_tuning.FAMILY,
    "gan": gan.FAMILY,
    "multi_label": multi_label.FAMILY,
    "pinn": pinn.FAMILY,
    "plateaus": plateaus.FAMILY,
    "policy_gradient": policy_gradient.FAMILY,
    "ranking": ranking.FAMILY,
    "regression": regression.FAMILY,
    "sequences": sequences.FAMILY,
    "tabular_classification": tabular_classification.FAMILY,
    "vae": vae.FAMILY,
}
