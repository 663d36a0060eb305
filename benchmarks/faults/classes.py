"""Mapping from the fault classes of the studies to vinedresser's faults.

The mapping is strict: a fault counts if it means the same, not if it is a consequence of the class.
If the studies use two names for one fault, or cannot distinguish two, both count.
"""

from __future__ import annotations

from vinedresser.rules.faults import FAULTS, Fault

__all__ = ["CLASSES", "JOINED", "classes_of", "right_words"]

# Joins the classes of two faults of one training.
JOINED = "+"

_MISMATCH: frozenset[Fault] = frozenset({"loss_output_mismatch"})
_INITIAL: frozenset[Fault] = frozenset({"bad_initialisation", "identical_units"})
_HIGH: frozenset[Fault] = frozenset({"learning_rate_too_high"})
_LOW: frozenset[Fault] = frozenset({"learning_rate_too_low"})
# For the training, a row with the inputs of another has the wrong label.
_CORRUPT: frozenset[Fault] = frozenset({"corrupt_inputs", "corrupt_labels"})
# In the studies, "exploding" is a gradient that grows until a value is not finite.
_EXPLODING: frozenset[Fault] = frozenset({"nonfinite"})
_UNTRAINED: frozenset[Fault] = frozenset({"untrained_parameters"})
_REGULAR: frozenset[Fault] = frozenset({"over_regularisation"})
_INPUTS: frozenset[Fault] = frozenset({"unnormalised_inputs"})
_TARGETS: frozenset[Fault] = frozenset({"unnormalised_targets"})
_UNCLEARED: frozenset[Fault] = frozenset({"gradients_not_cleared"})
_MODE: frozenset[Fault] = frozenset({"wrong_mode"})

_SPOILT: frozenset[Fault] = frozenset({"corrupt_inputs"})
_NONE: frozenset[Fault] = frozenset()

_SIGN: frozenset[Fault] = frozenset({"loss_output_mismatch", "unbounded_loss"})

CLASSES: dict[str, frozenset[Fault]] = {
    "bad_init": _INITIAL,
    "bad_initialisation": _INITIAL,
    "bad_initialization": _INITIAL,
    "poor_init": _INITIAL,
    "symmetric_init": _INITIAL,
    "identical_units": _INITIAL,
    "zero_init": _INITIAL,
    "vanishing": frozenset({"vanishing_gradient"}),
    "exploding": _EXPLODING,
    "exploding_gradient": _EXPLODING,
    "exploding_tensor": _EXPLODING,
    "nan": _EXPLODING,
    "nonfinite": _EXPLODING,
    "nan_loss": _EXPLODING,
    "dead_relu": frozenset({"dying_relu"}),
    # According to AUTOTRAINER, a lower learning rate cures oscillation.
    "oscillating": _HIGH,
    "oscillating_loss": _HIGH,
    "slow_convergence": _LOW,
    "lr_too_low": _LOW,
    "lr_low": _LOW,
    "lr_too_high": _HIGH,
    "lr_high": _HIGH,
    "lr_invalid": _HIGH,
    "wrong_optimizer": _HIGH | _LOW,
    "scheduler_to_zero": _LOW,
    "wrong_output_activation": _MISMATCH,
    "wrong_last_activation": _MISMATCH,
    "missing_softmax": _MISMATCH,
    "double_softmax": _MISMATCH,
    "one_unit_softmax": _MISMATCH,
    # Some have no minimum.
    "wrong_loss": _SIGN,
    "wrong_loss_function": _MISMATCH,
    "loss_output_mismatch": _MISMATCH,
    "label_width_mismatch": _MISMATCH,
    "wrong_broadcast": _MISMATCH | {"loss_scale"},
    "loss_reduction": frozenset({"loss_scale"}),
    "unnormalised_input": _INPUTS,
    "unnormalized_input": _INPUTS,
    "unnormalised_inputs": _INPUTS,
    "input_scale": _INPUTS,
    "unnormalised_target": _TARGETS,
    "unnormalised_targets": _TARGETS,
    "target_scale": _TARGETS,
    "missing_zero_grad": _UNCLEARED,
    "gradients_not_cleared": _UNCLEARED,
    "frozen_layers": _UNTRAINED,
    "not_in_optimizer": _UNTRAINED,
    "missing_parameters": _UNTRAINED,
    "detached_graph": _UNTRAINED,
    "missing_step": _UNTRAINED,
    "train_eval_mode": _MODE,
    "data_mixing": _CORRUPT,
    "shuffled_labels": _CORRUPT,
    "label_noise": _CORRUPT,
    "corrupt_labels": _CORRUPT,
    "corrupt_data": _CORRUPT,
    "leak": frozenset({"data_leakage"}),
    "dropout_too_high": _REGULAR,
    "over_regularization": _REGULAR,
    "weight_decay_too_high": _REGULAR,
    "bn_momentum": frozenset({"stale_statistics"}),
    "class_imbalance": frozenset({"class_imbalance"}),
    "single_label": frozenset({"single_label"}),
    "saturation": frozenset({"saturated_activation"}),
    # Those of the corpus.
    "large_init": _INITIAL,
    "small_init": _INITIAL,
    "late_jump": _HIGH,
    "momentum_too_high": _HIGH,
    "adam_betas": _HIGH,
    "adam_epsilon": _LOW,
    "scheduler_per_batch": _LOW,
    "clip_too_small": _LOW,
    "half_underflow": frozenset({"mixed_precision", "vanishing_gradient"}),
    "half_overflow": frozenset({"mixed_precision", "nonfinite"}),
    "wrong_parameters": _UNTRAINED,
    "evaluated_in_training": _MODE,
    "softmax_wrong_axis": _MISMATCH,
    "relu_before_loss": _MISMATCH,
    "nll_on_probabilities": _MISMATCH,
    "sigmoid_before_logits": _MISMATCH,
    "off_by_one": _CORRUPT,
    "target_leak": frozenset({"data_leakage"}),
    "no_causal_mask": frozenset({"data_leakage"}),
    "unshifted_targets": frozenset({"data_leakage"}),
    "evaluated_on_training_rows": frozenset({"data_leakage"}),
    "constant_inputs": _SPOILT,
    "duplicated_rows": _SPOILT | {"overfitting"},
    "same_batch": _SPOILT | {"overfitting"},
    "nan_inputs": _SPOILT | {"nonfinite"},
    "wrong_axis": _SPOILT,
    "ruinous_augmentation": _SPOILT,
    "too_small_model": frozenset({"underfitting"}),
    "exploding_rnn": _EXPLODING | _INITIAL,
    "discriminator_too_strong": frozenset({"vanishing_gradient", "saturated_activation"}),
    "wrong_sign": _SIGN,
    "term_wrong_sign": _SIGN,
    # Those of its families with other data, models and losses.
    "colliding_ids": _SPOILT,
    "swapped_ids": _SPOILT,
    "wrong_adjacency": _SPOILT,
    "wrong_shift": _SPOILT | {"data_leakage"},
    "augmented_without_targets": _CORRUPT,
    "censoring_inverted": _CORRUPT,
    "misaligned_targets": _CORRUPT,
    "ruinous_window": _CORRUPT,
    "swapped_coordinates": _CORRUPT,
    "blank_index": _MISMATCH,
    "pool_wrong_axis": _MISMATCH | _SPOILT,
    "sequence_lengths": _MISMATCH,
    "detached_log_probability": _UNTRAINED,
    "entropy_sign": _SIGN,
    "log_det_sign": _SIGN,
    "over_smoothing": frozenset({"vanishing_gradient", "no_signal", "underfitting"}),
    "divergence_unscaled": _REGULAR | {"loss_scale"},
    "sum_not_mean": _EXPLODING,
    "no_straight_through": _UNTRAINED | {"vanishing_gradient"},
    "range_unset": frozenset({"saturated_activation", "vanishing_gradient"}),
    "spectral_radius": _INITIAL | {"saturated_activation"},
    # Those of its families with hand-written steps, several networks and other libraries.
    "distance_sign": _MISMATCH,
    "looks_outside": _INITIAL,
    "mask_inverted": _MISMATCH,
    "negatives_left_out": _SIGN,
    "random_points": _SPOILT,
    "reversed_scale": _CORRUPT,
    "sorted_targets": _CORRUPT,
    "support_misaligned": _CORRUPT,
    "swapped_groups": _CORRUPT,
    # What makes a state that is forgotten, or reads one that is always zero, gets no gradient.
    "state_reset": _UNTRAINED,
    "symbols_detached": _UNTRAINED,
    "threshold_too_high": _INITIAL,
    "time_shuffled": _CORRUPT,
    # Of the columns or steps of the data, or of what a loss compares.
    "wrong_order": _MISMATCH | _CORRUPT,
    # Those of its families with several data sets, references and steps.
    "angles_unscaled": _SPOILT,
    "radius_too_high": _HIGH,
    "reference_shared": _UNTRAINED,
    "swapped_pairs": _CORRUPT,
    "truncated_rows": _SPOILT,
    # Those of its families of tables, texts, pictures, series and choices.
    "bands_reversed": _SPOILT,
    "batch_too_large": _LOW | {"underfitting"},
    "case_lost": _SPOILT,
    "clicks_delayed": _CORRUPT | {"class_imbalance"},
    "clock_shifted": _SPOILT,
    "labels_reversed": _CORRUPT,
    "missing_activation": frozenset({"underfitting"}),
    "negatives_of_the_same": _CORRUPT,
    # Each batch has rows of one class.
    "not_shuffled": frozenset({"single_label", "class_imbalance"}),
    "offsets_left_out": _SPOILT,
    "percentage_of_zero": _MISMATCH | {"loss_scale"},
    "popular_only": _CORRUPT | {"class_imbalance"},
    # What is evaluated was not prepared as what is trained on.
    "preprocessing_mismatch": _SPOILT | _INPUTS,
    "resized_labels": _CORRUPT,
    "skips_ahead": _CORRUPT,
    "stop_words_kept": _SPOILT,
    "swapped_rates": _HIGH | _LOW,
    "units_mixed": _SPOILT | _INPUTS,
    "weights_reversed": frozenset({"class_imbalance"}),
    # Those of its families of loans, spans, depths, boards and atoms.
    "gradient_sign": _MISMATCH,
    "invalid_pixels_kept": _CORRUPT,
    "mask_left_out": _CORRUPT,
    "players_swapped": _SPOILT,
    "question_left_out": _SPOILT,
    "swapped_heads": _CORRUPT,
    # That of its family of gauges.
    "radians_forgotten": _CORRUPT,
    # Those of its recipes.
    "warm_up_unit": _LOW,
    "normalised_twice": _INPUTS | _SPOILT,
    "returns_reversed": _NONE,
    # Faults without a word: they can be found, but not named.
    "average_reversed": _NONE,
    "adaptation_skipped": _NONE,
    "adapter_scale": _LOW,
    "base_not_loaded": _INITIAL,
    "few_levels": _NONE,
    "frozen_actor": _UNTRAINED,
    "time_reversed": _CORRUPT,
    "grid_unscaled": _NONE,
    "inner_rate": _LOW,
    "levels_swapped": _NONE,
    "state_detached": _NONE,
    "noise_schedule": _NONE,
    "noise_unscaled": _NONE,
    "positions_left_out": _NONE,
    "prior_too_high": _NONE,
    "reset_each_epoch": _NONE,
    "risk_set_reversed": _NONE,
    "same_mask": _NONE,
    "time_left_out": _NONE,
    "term_left_out": _NONE,
    "stale_target": _NONE,
    "stale_average": _NONE,
    "stale_buffer": _NONE,
    "temperature": _MISMATCH,
    "collapse": _NONE,
}


def classes_of(fault_class: str) -> list[str]:
    """Return the classes of a training's faults, one or two that `JOINED` joins."""
    return fault_class.split(JOINED)


def right_words(fault_class: str) -> frozenset[str]:
    """Return the words of `FAULTS` for a class; a class that is such a word includes itself.

    Empty for an unknown class; the words of both for two classes.
    """
    words: set[str] = set()
    for one in classes_of(fault_class):
        words |= CLASSES.get(one, frozenset()) | ({one} & set(FAULTS))
    return frozenset(words)
