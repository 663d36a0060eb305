"""Rule: the gradient fades on its way to the first layers of a run that does not learn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from vinedresser.capture.finding import Finding
from vinedresser.errors import ConfigError
from vinedresser.rules.advice import Advice
from vinedresser.rules.base import Rule
from vinedresser.rules.need import Need
from vinedresser.rules.signals.learning_outcome import LearningOutcome

if TYPE_CHECKING:
    from vinedresser.capture.store.step import Step

__all__ = ["VanishingGradient"]

# Fewer layers have no depth to vanish over.
_FEWEST_LAYERS = 3
# Rank correlation of gradient size and depth: it has to fade steadily, not at one odd layer.
_STEADY = 0.7
# A loss that lies this share below its start is learning, whatever the gradient looks like. Less
# may come from the last bias alone, which learns the mean of the labels.
_LEARNED = 1 / 3
_OUTCOME_PATIENCE = 200
# With weights scaled by this (standard deviation times root of the fan) even a linear layer
# weakens the gradient.
_TINY_GAIN = 0.3


class VanishingGradient(Rule):
    """The gradient fades on its way back to the first layers, and the run does not learn.

    Looks at the mean absolute gradient of each weight tensor, in the order of the model: the
    greatest in the first quarter of the layers over the greatest in the last quarter. Fires when
    this lies below ``ratio``, no gradient is exactly zero (that is dead units, another fault) and
    the gradient fades steadily with depth (rank correlation at least 0.7), at ``patience``
    consecutive looks, while no loss lies a third below its start and no metric improves.

    Args:
        ratio: first layers over last layers, under which it fires; healthy networks of ten layers
            lie between 0.01 and 100.
        every: train steps from one look to the next.
        patience: consecutive looks.
    """

    def __init__(self, ratio: float = 1e-4, every: int = 20, patience: int = 8) -> None:
        if not 0 < ratio < 1:
            raise ConfigError(f"ratio = {ratio:g}: must lie between 0 and 1")
        if every < 1 or patience < 1:
            raise ConfigError(f"every = {every}, patience = {patience}: must be at least 1")
        self.ratio = ratio
        self.every = every
        self.patience = patience
        self.needs = (
            Need("gradients", every=every, reductions=("abs_mean",)),
            Need("weights", every=every, reductions=("std", "l2"), required=False),
        )
        self._outcome = LearningOutcome(_OUTCOME_PATIENCE, _LEARNED)
        self._looks = 0
        self._since = -1
        self._fired = False

    def update(self, step: Step) -> Finding | None:
        """See `Rule.update`."""
        if self._fired or step.rank != 0:
            return None
        profile = _profile(step)
        if profile is None:
            return None
        if not (profile.ratio < self.ratio and profile.steady >= _STEADY):
            self._looks = 0
            return None
        self._looks += 1
        if self._looks == 1:
            self._since = step.step
        if self._looks < self.patience or not self._outcome.ripe():
            return None
        if self._outcome.learned() or self._outcome.improving_metric():
            return None
        self._fired = True
        return self._finding(step, profile)

    def _finding(self, step: Step, profile: _Profile) -> Finding:
        factor = profile.ratio ** (1 / max(1, len(profile.sizes) - 1))
        advice = _advice(step, len(profile.sizes), factor)
        shallow, deep = profile.sizes[profile.shallow], profile.sizes[profile.deep]
        losses = "".join(
            f", {name.rpartition('/')[2]} {now.level:.4g} from {progress.start()[0]:.4g}"
            for name, progress in self._outcome.losses.items()
            if (now := progress.now())
        )
        return self.found(
            step,
            since=self._since,
            tensor=profile.shallow,
            statistic="abs_mean",
            value=profile.ratio,
            threshold=self.ratio,
            confidence=1 - profile.ratio / self.ratio / 2,
            seen=(
                f"{_layer(profile.shallow)} |g| {shallow:.0e}, {_layer(profile.deep)} {deep:.0e} "
                f"(ratio {profile.ratio:.1e}){losses}{self._outcome.metrics_in_words()}"
            ),
            cause=advice.cause,
            remedy=advice.remedy,
            evidence={
                "abs_mean": profile.sizes,
                "factor_per_layer": factor,
                "rank_correlation": profile.steady,
                "looks": self._looks,
            },
        )


class _Profile(NamedTuple):
    """The gradient along the depth of a model.

    Attributes:
        sizes: mean absolute gradient of each weight tensor, in the order of the model.
        shallow, deep: name of the greatest in the first and in the last quarter.
        ratio: the first of these over the second.
        steady: rank correlation of size and depth.
    """

    sizes: dict[str, float]
    shallow: str
    deep: str
    ratio: float
    steady: float


def _layer(name: str) -> str:
    """Return a gradient's name without its kind."""
    return name.partition("/")[2]


def _profile(step: Step) -> _Profile | None:
    """Return the gradient along the depth; None where it was not captured, or is 0 or NaN."""
    if step.mode != "train":
        return None
    sizes = {
        name: size
        for name, size in step.reduction_of("gradients", "abs_mean").items()
        if "bias" not in name.rpartition(".")[2]
    }
    names = list(sizes)
    if len(names) < _FEWEST_LAYERS:
        return None
    if not all(size > 0 and math.isfinite(size) for size in sizes.values()):
        return None
    quarter = max(1, len(names) // 4)
    shallow = max(names[:quarter], key=sizes.__getitem__)
    deep = max(names[-quarter:], key=sizes.__getitem__)
    ratio = sizes[shallow] / sizes[deep]
    return _Profile(sizes, shallow, deep, ratio, _rank_correlation(list(sizes.values())))


def _rank_correlation(values: Sequence[float]) -> float:
    """Return Spearman's rank correlation of values and their positions; no ties."""
    count = len(values)
    order = sorted(range(count), key=values.__getitem__)
    squares = sum((rank - position) ** 2 for rank, position in enumerate(order))
    return 1 - 6 * squares / (count * (count * count - 1))


def _advice(step: Step, layers: int, factor: float) -> Advice:
    """Return the likely cause and the remedy, from how large the weights are.

    Args:
        step: where weights were captured beside the gradients, or not.
        layers: how many weight tensors.
        factor: by which the gradient changes from one layer to the one before it.
    """
    passed = f"each of {layers} layers passes on about 1/{1 / factor:.2g} of the gradient"
    gain = _gain(step)
    if gain is not None and gain < _TINY_GAIN:
        return Advice(
            cause=f"the weights are too small: {passed}, and their scale (standard deviation times "
            f"root of the width) is {gain:.2g} where about 1 keeps the gradient",
            remedy="He or Xavier initialisation, or batch or layer normalisation after each layer",
        )
    return Advice(
        cause=f"saturating activations in a deep stack: {passed} (a sigmoid passes on at most 1/4)",
        remedy="relu, or batch or layer normalisation after each layer, or skip connections",
    )


def _gain(step: Step) -> float | None:
    """Return the median over layers of std(W) * numel(W)^(1/4), which is std * sqrt(width).

    numel = l2^2 / mean(W^2), and mean(W^2) is the variance as long as the mean is small beside it.
    None: no weights were captured at this step.
    """
    norms = step.reduction_of("weights", "l2")
    gains = sorted(
        std * math.sqrt(norms[name] / std)
        for name, std in step.reduction_of("weights", "std").items()
        if std > 0 and name in norms
    )
    return gains[len(gains) // 2] if gains else None
