"""The visible families, in a package per kind of data."""

from __future__ import annotations

from benchmarks.world.families.decisions import (
    actor_critic,
    continuous_control,
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
    segmentation,
    super_resolution,
    triplets,
    video,
)
from benchmarks.world.families.keras_ import (
    keras_reviews,
    keras_sensors,
)
from benchmarks.world.families.rows import (
    bayes,
    boosted_rows,
    counts,
    distillation,
    experts,
    factorisation,
    federated,
    fine_tuning,
    mean_teacher,
    multi_label,
    pinn,
    plateaus,
    quantiles,
    ranking,
    regression,
    tabular_classification,
)
from benchmarks.world.families.series import (
    char_gpt,
    ctc,
    dynamics,
    forecasting,
    keywords,
    masked_words,
    sequences,
    translation,
    word_vectors,
)
from benchmarks.world.families.structures import (
    bags,
    contrastive,
    graph_nodes,
    knowledge_graph,
    molecules,
    point_sets,
    preferences,
)
from benchmarks.world.family import Family

__all__ = ["FAMILIES"]

FAMILIES: dict[str, Family] = {
    "actor_critic": actor_critic.FAMILY,
    "autoencoder": autoencoder.FAMILY,
    "bags": bags.FAMILY,
    "bayes": bayes.FAMILY,
    "boosted_rows": boosted_rows.FAMILY,
    "char_gpt": char_gpt.FAMILY,
    "continuous_control": continuous_control.FAMILY,
    "contrastive": contrastive.FAMILY,
    "counts": counts.FAMILY,
    "ctc": ctc.FAMILY,
    "diffusion": diffusion.FAMILY,
    "digits_cnn": digits_cnn.FAMILY,
    "distillation": distillation.FAMILY,
    "dqn": dqn.FAMILY,
    "dynamics": dynamics.FAMILY,
    "experts": experts.FAMILY,
    "factorisation": factorisation.FAMILY,
    "federated": federated.FAMILY,
    "fine_tuning": fine_tuning.FAMILY,
    "forecasting": forecasting.FAMILY,
    "gan": gan.FAMILY,
    "graph_nodes": graph_nodes.FAMILY,
    "keras_reviews": keras_reviews.FAMILY,
    "keras_sensors": keras_sensors.FAMILY,
    "keywords": keywords.FAMILY,
    "knowledge_graph": knowledge_graph.FAMILY,
    "localisation": localisation.FAMILY,
    "masked_words": masked_words.FAMILY,
    "mean_teacher": mean_teacher.FAMILY,
    "mixture_density": mixture_density.FAMILY,
    "molecules": molecules.FAMILY,
    "multi_label": multi_label.FAMILY,
    "normalizing_flow": normalizing_flow.FAMILY,
    "pinn": pinn.FAMILY,
    "plateaus": plateaus.FAMILY,
    "point_sets": point_sets.FAMILY,
    "policy_gradient": policy_gradient.FAMILY,
    "preferences": preferences.FAMILY,
    "quantiles": quantiles.FAMILY,
    "ranking": ranking.FAMILY,
    "regression": regression.FAMILY,
    "segmentation": segmentation.FAMILY,
    "sequences": sequences.FAMILY,
    "super_resolution": super_resolution.FAMILY,
    "tabular_classification": tabular_classification.FAMILY,
    "translation": translation.FAMILY,
    "triplets": triplets.FAMILY,
    "vae": vae.FAMILY,
    "video": video.FAMILY,
    "word_vectors": word_vectors.FAMILY,
}
