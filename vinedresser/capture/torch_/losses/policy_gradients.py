"""Recognition of policy gradients, by the autograd graph of a loss."""

from __future__ import annotations

from collections import deque
from typing import Any

from torch import Tensor

from vinedresser.frameworks.torch_.losses.saved_tensors import saved

# Functions that keep the sign of each part of a sum, or change all signs.
_LINEAR = (
    *("MeanBackward", "SumBackward", "NegBackward", "AddBackward", "SubBackward", "DivBackward"),
    *("MinimumBackward", "MaximumBackward", "SqueezeBackward", "UnsqueezeBackward"),
    *("ViewBackward", "ReshapeAliasBackward", "ToCopyBackward", "StackBackward", "CatBackward"),
)
# The smaller or larger one of two tensors, and that along the dimension in which they are stacked.
_EXTREMES = ("MinimumBackward", "MaximumBackward")
_STACKED_EXTREMES = ("MinBackward", "MaxBackward", "AminBackward", "AmaxBackward")
_STACKS = ("StackBackward", "CatBackward")
# A loss may be a sum over the steps of an episode.
_MOST_NODES = 256
# How a log-probability of each row is chosen, and the functions between that and the factor.
_CHOICES = ("GatherBackward", "IndexBackward", "SelectBackward")
_LOGARITHMS = ("LogBackward", "LogSoftmaxBackward")
_LIKELIHOODS = (
    *("LogBackward", "LogSoftmaxBackward", "LogSigmoidBackward", "NllLoss", "BinaryCrossEntropy"),
    *("LgammaBackward", "XlogyBackward"),
)
_SOFTMAX = ("SoftmaxBackward",)
_BETWEEN = (
    *("NegBackward", "SqueezeBackward", "UnsqueezeBackward", "ViewBackward", "ClampBackward"),
    *("UnbindBackward", *_STACKS, "ReshapeAliasBackward", "SumBackward", "ToCopyBackward"),
    *("SliceBackward", "PermuteBackward", "TransposeBackward", "TBackward", "ExpandBackward"),
    # Ratios of probabilities, and corrections of squashed actions.
    *("ExpBackward", "AddBackward"),
)
# Functions between a log-probability of a normal distribution and the squared distance in it.
_SCALED = ("DivBackward", "MulBackward")
_DISTANCES = ("SubBackward", "LinalgSolveTriangularBackward")
_MOST_BETWEEN = 24
# Minimum number of log-probabilities, and the share with a factor of its own.
_FEWEST = 8
_OWN = 0.5
# Number of updates whose log-probabilities have a common factor, each another one.
_UPDATES = 3


class PolicyGradients:
    """Tells whether the losses of an update weight their parts with advantages or returns.

    Such losses (Williams, "Simple statistical gradient-following algorithms", 1992; also with
    clipped ratios, as PPO has) say nothing about progress: the model makes its own data, and the
    mean of the factors does not fall. They have

    - log-probabilities, or ratios of probabilities, with factors of both signs, or
    - the common factors in the clipped objective of PPO (Schulman et al., "Proximal policy
      optimization algorithms", 2017), which may all be positive in the first batches, or
    - eight or more log-probabilities of one event each, such as an action of a class or of a normal
      distribution, with a factor of its own for most of them: returns are positive where all
      rewards are. Each may be a loss with a backward pass, and an update may have as few as two of
      them, as that of an actor-critic after five steps. The factor may also be the same for all of
      them, the return of a whole episode, if it was another one in each of three updates.

    Losses of supervised trainings weight likelihoods with positive numbers, if at all, and these
    are few, as of classes. Other values may have factors of both signs: errors, in the loss of
    quantiles, or shares of a portfolio, by its returns.
    """

    def __init__(self) -> None:
        self._found = False
        # Factors of the log-probabilities of an update.
        self._weights: list[float] = []
        # Those of all updates in which most log-probabilities have a factor of their own.
        self._own: list[float] = []
        # Factors that were the same for all log-probabilities of an update.
        self._common: set[float] = set()

    def add(self, loss: Tensor) -> None:
        """Look at a loss whose graph has not been freed by a backward pass.

        Reads values, so that a GPU is waited for.

        Args:
            loss: loss [] with a gradient.
        """
        if not self._found:
            self._found = self._look(loss)

    def take(self) -> bool:
        """Return whether the losses of the update are policy gradients; the next one begins."""
        weights = self._weights
        if len(weights) >= _FEWEST and len({*weights}) == 1:
            self._common |= {*weights}
        if len({*weights}) > 1 and _differ(weights):
            self._own += weights
        own = len(self._own) >= _FEWEST and _differ(self._own)
        found = self._found or own or len(self._common) >= _UPDATES
        self._found, self._weights = False, []
        return found

    def _look(self, loss: Tensor) -> bool:
        # Nodes, and whether each is part of a stack of single numbers.
        waiting: deque[tuple[Any, bool]] = deque([(loss.grad_fn, False)])
        signs: set[int] = set()
        seen = 0
        while waiting and seen < _MOST_NODES and len(signs) < 2:
            node, stacked = waiting.popleft()
            if node is None:
                continue
            seen += 1
            if _is_clipped(node):
                return True
            factor = _factor(node)
            several = factor is not None and (stacked or factor.numel() > 1)
            if factor is not None and several and _is_likelihood(_origin(node)):
                signs |= {sign for sign in (-1, 1) if bool((sign * factor > 0).any())}
            if factor is not None and len(self._weights) < _MOST_NODES and _picks(node):
                self._weights += factor.reshape(-1)[:_MOST_NODES].tolist()
            scales = factor is not None and factor.numel() == 1
            if scales or node.name().startswith(_LINEAR) or _compared(node):
                stacked |= node.name().startswith(_STACKS)
                waiting.extend((origin, stacked) for origin, _ in node.next_functions)
        return len(signs) == 2


def _differ(weights: list[float]) -> bool:
    """Return whether most log-probabilities have a factor of their own."""
    return len({*weights}) > _OWN * len(weights)


def _is_clipped(node: Any) -> bool:
    """Return whether a node computes min(ratio * A, clamp(ratio) * A), or the maximum."""
    products = _compared(node)
    if not products or any(product is None or _factor(product) is None for product in products):
        return False
    first, second = (_origin(product) for product in products)
    return _clamps(first, second) or _clamps(second, first)


def _compared(node: Any) -> list[Any]:
    """Return the origins of the two tensors whose minimum or maximum a node computes; else []."""
    if node.name().startswith(_STACKED_EXTREMES):
        node = _origin(node)
        if node is None or not node.name().startswith("StackBackward"):
            return []
    elif not node.name().startswith(_EXTREMES):
        return []
    origins = [origin for origin, _ in node.next_functions]
    return origins if len(origins) == 2 else []


def _clamps(ratio: Any, other: Any) -> bool:
    """Return whether a ratio is another one, clamped itself or by its logarithm."""
    names = [one.name() for one in (ratio, other)]
    if all(name.startswith("ExpBackward") for name in names):
        ratio, other = _origin(ratio), _origin(other)
    return bool(ratio.name().startswith("ClampBackward")) and _origin(ratio) is other


def _factor(node: Any) -> Tensor | None:
    """Return the factor without a gradient of a product, or None."""
    if node.name() != "MulBackward0":
        return None
    first, second = (origin for origin, _ in node.next_functions)
    if first is not None and second is not None:
        return None
    return saved(node, "other" if second is None else "self")


def _picks(product: Any) -> bool:
    """Return whether a product with a factor without a gradient weights log-probabilities.

    They are those of one event per row, such as an action: neither those of all classes, which soft
    labels weight, nor those of `torch.nn.functional.nll_loss`.
    """
    node, before = _origin(product), ""
    chosen = logarithm = lowered = False
    for _ in range(_MOST_BETWEEN):
        if node is None or (chosen and logarithm):
            break
        name = node.name()
        if name.startswith(_CHOICES):
            chosen = True
        elif name.startswith(_LOGARITHMS) or _normalises(node):
            logarithm = True
        elif name.startswith("SubBackward"):
            lowered = True
        elif lowered and name.startswith("PowBackward"):
            return bool(_origin(node).name().startswith(_DISTANCES))
        elif name.startswith("BinaryCrossEntropyWithLogits"):
            # `torch.distributions.Bernoulli` negates it.
            return before.startswith("NegBackward")
        elif not name.startswith(_BETWEEN + _SCALED * lowered):
            break
        node, before = _origin(node), name
    return chosen and logarithm


def _is_likelihood(node: Any) -> bool:
    """Return whether a node computes log-probabilities, or ratios of probabilities of events."""
    chosen = lowered = False
    for _ in range(_MOST_BETWEEN):
        if node is None:
            return False
        name = node.name()
        if name.startswith(_LIKELIHOODS + _SOFTMAX * chosen) or _normalises(node):
            return True
        if lowered and name.startswith("PowBackward"):
            return bool(_origin(node).name().startswith(_DISTANCES))
        chosen |= name.startswith(_CHOICES)
        lowered |= name.startswith("SubBackward")
        if not name.startswith((*_BETWEEN, *_CHOICES, *_SCALED, "SubBackward")):
            return False
        node = _origin(node)
    return False


def _origin(node: Any) -> Any:
    """Return the first origin of a node that has a gradient, or None."""
    return next((origin for origin, _ in node.next_functions if origin is not None), None)


def _normalises(node: Any) -> bool:
    """Return whether a node computes the logarithms of a softmax, as distributions do."""
    return node.name().startswith("SubBackward") and any(
        origin is not None and origin.name().startswith("LogsumexpBackward")
        for origin, _ in node.next_functions
    )
