"""Trainings after public examples and papers, with their settings; `--recipes` runs them.

The hyperparameters are those of the sources that each file names, scaled down where it says so.
Each recipe has three faults, mistakes as users make them. Those are not drawn: a recipe is the same
in each run but for its random numbers. They were written without a look at the rules.
"""

from __future__ import annotations

from benchmarks.world.family import Family
from benchmarks.world.recipes.decisions import dqn_corridor, ppo_pole, reinforce_pole
from benchmarks.world.recipes.generative import dcgan_digits, ddpm_points, mlp_vae, toy_wgan_gp
from benchmarks.world.recipes.images import mnist_cnn, transfer_digits, vit_digits
from benchmarks.world.recipes.keras_ import functional_digits, loop_digits
from benchmarks.world.recipes.rows import fastai_ratings, hinton_distillation
from benchmarks.world.recipes.series import attention_seq2seq, names_rnn, nano_gpt, word_lstm
from benchmarks.world.recipes.structures import oscillator_pinn, planetoid_gcn, spiral_ode
from benchmarks.world.recipes.trees import boosted_digits

__all__ = ["RECIPES"]

RECIPES: dict[str, Family] = {
    "attention_seq2seq": attention_seq2seq.FAMILY,
    "boosted_digits": boosted_digits.FAMILY,
    "dcgan_digits": dcgan_digits.FAMILY,
    "ddpm_points": ddpm_points.FAMILY,
    "dqn_corridor": dqn_corridor.FAMILY,
    "fastai_ratings": fastai_ratings.FAMILY,
    "functional_digits": functional_digits.FAMILY,
    "hinton_distillation": hinton_distillation.FAMILY,
    "loop_digits": loop_digits.FAMILY,
    "mlp_vae": mlp_vae.FAMILY,
    "mnist_cnn": mnist_cnn.FAMILY,
    "names_rnn": names_rnn.FAMILY,
    "nano_gpt": nano_gpt.FAMILY,
    "oscillator_pinn": oscillator_pinn.FAMILY,
    "planetoid_gcn": planetoid_gcn.FAMILY,
    "ppo_pole": ppo_pole.FAMILY,
    "reinforce_pole": reinforce_pole.FAMILY,
    "spiral_ode": spiral_ode.FAMILY,
    "toy_wgan_gp": toy_wgan_gp.FAMILY,
    "transfer_digits": transfer_digits.FAMILY,
    "vit_digits": vit_digits.FAMILY,
    "word_lstm": word_lstm.FAMILY,
}
