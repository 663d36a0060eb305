"""The size of the gradient: by step, relative to its start, and along the depth of a model."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Sequence
from typing import NamedTuple

from vinedresser.rules.need import optional_statistics
from vinedresser.rules.signals.base import Signal
from vinedresser.store.reading.step import Step
from vinedresser.store.records import RunRecord

__all__ = [
    "BiasGradient",
    "GradientGrowth",
    "GradientNorms",
    "GradientProfile",
    "gradient_profile",
    "left_out",
    "only_of_biases",
    "weights_to_bias",
]

# Minimum number of layers for a profile.
_FEWEST_LAYERS = 3
# Number of checks, and relative spread of their norms, that show a clipped gradient.
_CLIPPED_CHECKS, _CLIPPED = 5, 1e-3
# Minimum ratio that differs from 0.
_LEAST = 1e-300
# Ratio of the gradient of all weights to that of a bias below which none reaches the weights.
_ONLY_BIASES = 1e-6


# Names of the weights and the bias of a dense layer or a convolution in torch and Keras, and of
# those that receive the inputs of a recurrent layer in torch.
_WEIGHTS = {"weight": "bias", "kernel": "bias", "weight_ih_l0": "bias_ih_l0"}


class GradientNorms:
    """Recent gradient norms of one rank, from the l2 norms of its tensors.

    Attributes:
        norms: (step, norm) of the last 32 captured gradients, oldest first; a norm is infinite if
            its square overflows, which is possible for finite gradients.
        tensors: number of tensors of the last gradient.
        zeros: number of these tensors with a norm of exactly zero.
    """

    def __init__(self) -> None:
        self.tensors = 0
        self.zeros = 0
        self.norms: deque[tuple[int, float]] = deque(maxlen=32)

    def add(self, step: Step) -> None:
        """Process a train step; ignore it if no gradient was captured or its norm is NaN."""
        parts = list(step.reduction_of("gradients", "l2").values())
        if not math.isnan(norm := _norm(parts)):
            self.norms.append((step.step, norm))
            self.tensors = len(parts)
            self.zeros = parts.count(0.0)

    @property
    def clipped(self) -> bool:
        """Whether the gradient has the same norm at each of the last checks, as if clipped."""
        recent = [norm for _, norm in self.norms][-_CLIPPED_CHECKS:]
        same = max(recent, default=0.0) - min(recent, default=0.0)
        return len(recent) == _CLIPPED_CHECKS and max(recent) > 0 and same < _CLIPPED * max(recent)

    def growth(self) -> float:
        """Return the ratio of the last norm to the previous median; 1 if there are too few."""
        if len(self.norms) < 2:
            return 1.0
        *before, last = (norm for _, norm in self.norms)
        usual = sorted(before)[len(before) // 2]
        if usual == 0 or math.isinf(usual):
            return 1.0
        return last / usual


class GradientGrowth(Signal):
    """The norm of the whole gradient, relative to its first value.

    Gradients of parameters that no optimizer has are left out: no optimizer clears them either.

    Args:
        every: train steps between two checks.

    Attributes:
        first: l2 norm at the first check; NaN before.
        last: l2 norm at the last check.
    """

    def __init__(self, every: int = 20) -> None:
        self.every = every
        self.needs = optional_statistics(every, gradients=("l2",))
        self.first = math.nan
        self.last = math.nan
        self._left_out: frozenset[str] = frozenset()

    def on_record(self, info: RunRecord) -> None:
        """Read the parameters that no optimizer has."""
        self._left_out = left_out(info)

    @property
    def growth(self) -> float:
        """The ratio of the last norm to the first; NaN before the first, or if it was 0."""
        return self.last / self.first if self.first > 0 else math.nan

    def update(self, step: Step) -> None:
        """See `Signal.update`."""
        norms = step.reduction_of("gradients", "l2")
        norm = _norm([one for name, one in norms.items() if name not in self._left_out])
        if step.rank == 0 and step.mode == "train" and not math.isnan(norm):
            self.last = norm
            if math.isnan(self.first):
                self.first = norm


class GradientProfile(NamedTuple):
    """The gradient along the depth of a model.

    Attributes:
        sizes: mean absolute gradient of each weight tensor by name, in the order of the model.
        shallow, deep: name of the largest in the first and in the last quarter.
        ratio: ratio of the gradients of ``shallow`` and ``deep``.
        steady: rank correlation of size and depth; 1 if the gradient fades at each layer on its
            way back, -1 if it grows at each.
    """

    sizes: dict[str, float]
    shallow: str
    deep: str
    ratio: float
    steady: float

    @property
    def per_layer(self) -> float:
        """The factor from a layer to the previous one, as a geometric mean."""
        return math.pow(max(self.ratio, _LEAST), 1 / max(1, len(self.sizes) - 1))


class BiasGradient(NamedTuple):
    """Gradients that reach biases, but hardly any weights.

    Attributes:
        bias: full name of the largest gradient of a bias.
        biases: l2 norm of that gradient.
        weights: l2 norm of the gradients of all weights.
        most: maximum ratio of the two.
    """

    bias: str
    biases: float
    weights: float
    most: float


def only_of_biases(step: Step) -> BiasGradient | None:
    """Return the gradients if they reach biases, but hardly any weights; else None.

    The gradient of a weight is that of the bias beside it times the inputs of the layer: a bias
    without the weight shows inputs of zero, and for the layers before, a slope of zero. Gradients
    of exactly zero, as of dead units, are left to other rules.

    Args:
        step: step with the statistic ``l2`` of gradients and weights.
    """
    paths = {name.partition("/")[2] for name in step.reduction_of("weights", "l2")}
    weights, biases = list[float](), dict[str, float]()
    for name, norm in step.reduction_of("gradients", "l2").items():
        if name.partition("/")[2] in paths:
            weights.append(norm)
        else:
            biases[name] = norm
    bias = max(biases, key=biases.__getitem__, default="")
    if not weights or not bias or not 0 < biases[bias] < math.inf:
        return None
    norm = _norm(weights)
    if not 0 < norm < _ONLY_BIASES * biases[bias]:
        return None
    return BiasGradient(bias, biases[bias], norm, _ONLY_BIASES)


def weights_to_bias(step: Step) -> float | None:
    """Return the ratio of the gradients (l2) of the weights and the bias of the first layer.

    Those of the weights are products of those of the bias and the inputs of the layer. None if they
    are not captured, or if the bias has no gradient.
    """
    sizes = step.reduction_of("gradients", "l2")
    for name, size in sizes.items():
        path, _, word = name.rpartition(".")
        if word in _WEIGHTS:
            bias = sizes.get(f"{path}.{_WEIGHTS[word]}", 0.0)
            return size / bias if bias > 0 and math.isfinite(size) else None
    return None


def left_out(info: RunRecord) -> frozenset[str]:
    """Return the full names of the gradients of parameters that no optimizer has."""
    return frozenset(f"gradients/{name.partition('/')[2]}" for name in info.unoptimized)


def gradient_profile(step: Step, order: Sequence[str] = ()) -> GradientProfile | None:
    """Return the gradient along the depth; None if it was not captured, or is 0 or not finite.

    Args:
        step: step with the statistic ``abs_mean`` of gradients; biases are ignored.
        order: full names of the weights in the order of the forward (`RunRecord.order`); unless it
            has all of them, they are taken in the order of their definition.
    """
    if step.mode != "train":
        return None
    sizes = {
        name: size
        for name, size in step.reduction_of("gradients", "abs_mean").items()
        if "bias" not in name.rpartition(".")[2]
    }
    ordered = [f"gradients/{name.partition('/')[2]}" for name in order]
    if sizes.keys() <= set(ordered):
        sizes = {name: sizes[name] for name in ordered if name in sizes}
    names = list(sizes)
    if len(names) < _FEWEST_LAYERS:
        return None
    if not all(size > 0 and math.isfinite(size) for size in sizes.values()):
        return None
    quarter = max(1, len(names) // 4)
    shallow = max(names[:quarter], key=sizes.__getitem__)
    deep = max(names[-quarter:], key=sizes.__getitem__)
    ratio = sizes[shallow] / sizes[deep]
    return GradientProfile(sizes, shallow, deep, ratio, _rank_correlation(list(sizes.values())))


def _norm(parts: Collection[float]) -> float:
    """Return the l2 norm of the whole gradient, given those of its tensors; NaN without any."""
    return math.hypot(*parts) if parts else math.nan


def _rank_correlation(values: Sequence[float]) -> float:
    """Return Spearman's rank correlation of values and their positions, without ties."""
    count = len(values)
    order = sorted(range(count), key=values.__getitem__)
    squares = sum((rank - position) ** 2 for rank, position in enumerate(order))
    return 1 - 6 * squares / (count * (count * count - 1))
