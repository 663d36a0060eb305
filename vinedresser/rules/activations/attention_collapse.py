"""Rule: attention heads are saturated or stay uniform, and the run does not learn."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vinedresser.errors import ConfigError
from vinedresser.rules.applicability import NETWORKS_ONLY
from vinedresser.rules.bounds import require_between
from vinedresser.rules.need import optional_statistics
from vinedresser.rules.signals.outcomes.guessing import Guessing
from vinedresser.rules.signals.outcomes.outcome import PLATEAU
from vinedresser.rules.signals.outcomes.verdict import Verdict
from vinedresser.rules.symptom import Symptom, SymptomRule
from vinedresser.store.reading.step import Step
from vinedresser.store.records import RunRecord
from vinedresser.store.reductions.sampling import some_rows

__all__ = ["AttentionCollapse"]

_COLLECTION, _MEAN, _STD = "attention", "channel_mean", "channel_std"
# Rows of captured attention that are read; heads differ far more than rows.
_ROWS = 8
# Relative variance of the weights of a query, below which they are uniform. Scores of standard
# deviation s give about s². Trainings that start at 6e-7 (the default embeddings of Keras) find
# their way; those of scores that are zero up to rounding are at 1e-13.
_UNIFORM = 1e-10


class _Heads(NamedTuple):
    """State of the heads of a layer; float64 [heads] each.

    Attributes:
        slope: 1 - Σ p² of the weights p of a query, the mean over queries.
        variance: relative variance of the weights of a query over its visible keys.
    """

    slope: NDArray[np.float64]
    variance: NDArray[np.float64]


class AttentionCollapse(SymptomRule):
    """Attention heads are saturated or stay uniform, and the run does not learn.

    A query with weights p passes a gradient to its scores through the Jacobian of the softmax,
    diag(p) - p pᵀ, whose trace is 1 - Σ p². It is 0 if the query attends to a single key with
    weight 1: queries and keys then receive no gradient, and the head cannot recover (Zhai et al.,
    "Stabilizing Transformer Training by Preventing Attention Entropy Collapse", ICML 2023). Fires
    when the mean trace of all heads of a layer is below ``slope``, or when all heads of all layers
    are uniform over their keys, at ``patience`` consecutive checks, in a training that learns less
    than it should, or whose loss is that of guessing after half of a run of known length or at the
    end. Layers with a single key do not count.

    The rule reads the attention that is captured, in full or as ``channel_mean`` and
    ``channel_std``, and by default captures none: where fused kernels never compute the weights,
    they take memory in proportion to the square of the sequence.

    Args:
        slope: mean trace below which a head is saturated; 0.03 is a largest weight of 0.985.
        every: train steps between captures of the attention's statistics; 0: capture none.
        patience: number of consecutive checks.
    """

    severity = "warning"
    fault = "attention_collapse"
    stage = "inside"
    consequences = ("outcome",)
    position = 340
    inapplicable = NETWORKS_ONLY
    # On a plateau before learning, heads may not have found a key yet.
    awaits_plateau = True

    def __init__(self, slope: float = 0.03, every: int = 0, patience: int = 3) -> None:
        require_between(0, 1, slope=slope)
        if every < 0:
            raise ConfigError(f"every = {every}: must be at least 0 steps")
        super().__init__(patience)
        self.slope = slope
        self.every = every
        self.guessing = Guessing()
        self._half: float | None = None
        self._step = 0
        if every:
            self.needs = optional_statistics(every, attention=(_MEAN, _STD))

    def begin(self, info: RunRecord) -> None:
        """Read the expected number of steps."""
        self._half = PLATEAU * info.total_steps if info.total_steps else None

    def verdict(self, *, ended: bool) -> Verdict:
        """See `SymptomRule.verdict`: poor also if the loss is not below that of guessing."""
        verdict = super().verdict(ended=ended)
        late = self._half is not None and self._step >= self._half
        if verdict.kind != "open" or not (ended or late):
            return verdict
        reasons = [self._guesses(name) for name in self.outcome.progress.losses]
        # One learned task is enough: other losses may be auxiliary.
        return Verdict("poor", reasons[0]) if reasons and all(reasons) else verdict

    def _guesses(self, name: str) -> str:
        """Return words on a loss that is not below that of guessing; "" if it is, or is unknown."""
        guessed = self.guessing.loss(name.partition("/")[2])
        latest = self.outcome.progress.losses[name].latest()
        if guessed is None or latest is None or latest.level + 2 * latest.error < guessed:
            return ""
        return f"{name} {latest.level:.4g} where guessing gives {guessed:.4g}"

    def is_checked(self, step: Step) -> bool:
        """See `SymptomRule.is_checked`: whenever attention was captured."""
        return bool(_captured(step)) or bool(step.vectors_of(_COLLECTION, _STD))

    def detect(self, step: Step) -> Symptom | None:
        """See `SymptomRule.detect`."""
        self._step = step.step
        layers = _layers(step)
        if not layers:
            return None
        slopes = {name: float(one.slope.max()) for name, one in layers.items()}
        saturated = [name for name, slope in slopes.items() if slope < self.slope]
        if saturated:
            # The first in model order: the layers after it receive what it returns.
            first = saturated[0]
            return Symptom(
                tensor=first,
                statistic="softmax_slope",
                value=slopes[first],
                threshold=self.slope,
                confidence=0.8,
                seen=f"each head of {first} attends to a single key with a weight of almost 1, so "
                "that queries and keys receive no gradient; so do the heads of "
                f"{len(saturated)} of {len(slopes)} attention layers",
                cause="the scores before the softmax are too large: the learning rate is too high, "
                "or they are not divided by the square root of the head's width",
                remedy="lower the learning rate or warm it up, divide the scores by the square "
                "root of the head's width, or normalise queries and keys",
                evidence={"softmax_slope": slopes},
            )
        variance = {name: float(one.variance.max()) for name, one in layers.items()}
        if max(variance.values()) >= _UNIFORM:
            return None
        return Symptom(
            tensor=max(variance, key=variance.__getitem__),
            statistic="relative_variance",
            value=max(variance.values()),
            threshold=_UNIFORM,
            confidence=0.6,
            seen=f"all heads of {len(layers)} attention layers attend to all keys alike",
            cause="the scores before the softmax are too small: queries or keys are almost zero, "
            "or the scores are divided by too large a number",
            remedy="divide the scores by the square root of the head's width only, and check the "
            "initialisation and the weight decay of the projections to queries and keys",
            evidence={"relative_variance": variance},
        )


def _captured(step: Step) -> list[str]:
    """Return the attention tensors captured in full."""
    member = f"{_COLLECTION}/"
    return [name for name in step.tensor_names if name.startswith(member) and "|" not in name]


def _layers(step: Step) -> dict[str, _Heads]:
    """Return the heads of each layer that has a choice of keys, in capture order."""
    means, stds = (step.vectors_of(_COLLECTION, word) for word in (_MEAN, _STD))
    found = {name: _of_statistics(means[name], std) for name, std in stds.items() if name in means}
    for name in _captured(step):
        if name not in found:
            found[name] = _of_weights(step.tensor(name))
    return {name: heads for name, heads in found.items() if heads is not None}


def _of_statistics(mean: NDArray[Any], std: NDArray[Any]) -> _Heads | None:
    """Return the heads by the mean and standard deviation of their weights, float64 [heads] each.

    The weights of a query sum to 1, so the mean over queries of Σ p² is the mean of p² divided by
    the mean of p. This holds for a sample of the weights, too.
    """
    usable = np.isfinite(mean) & np.isfinite(std) & (mean > 0)
    # Without a choice, each weight is 1.
    if not usable.all() or (mean >= 1).any():
        return None
    square = std.astype(np.float64) ** 2
    return _Heads(1 - (square + mean**2) / mean, square / mean**2)


def _of_weights(value: NDArray[Any]) -> _Heads | None:
    """Return the heads by their weights, [rows, heads, queries, keys]; None without a choice."""
    if value.ndim != 4 or not value.size:
        return None
    weights = np.nan_to_num(some_rows(value, _ROWS).astype(np.float64))
    visible = (weights > 0).any(1, keepdims=True).sum(-1)
    # Masked queries have no keys, and some, such as the first under a causal mask, have one.
    chooses = np.broadcast_to(visible > 1, weights.shape[:3])
    counts = chooses.sum((0, 2))
    if not counts.all():
        return None
    squares = (weights**2).sum(-1)
    slope = np.where(chooses, 1 - squares, 0.0).sum((0, 2)) / counts
    variance = np.where(chooses, squares * visible - 1, 0.0).sum((0, 2)) / counts
    return _Heads(slope, np.maximum(variance, 0.0))
