"""First-order Taylor expansions of the loss."""

from __future__ import annotations

import numpy as np

from vinedresser.pruning.criteria.criterion import Criterion, Floats, GroupTensors

__all__ = ["SignedTaylor", "TaylorActivation", "TaylorWeight", "over_norm"]


class TaylorActivation(Criterion):
    """Expected change of the loss if a channel's activation were zero.

    Molchanov et al., Pruning Convolutional Neural Networks for Resource Efficient Inference, ICLR
    2017, equations 7 and 8: the mean over examples of the absolute mean over space of activation
    times gradient, divided by the L2 norm of the layer's scores. The activation is the input of the
    layers that read the channel; with several, the mean.
    """

    name = "taylor_activation"
    measurements = ("input_taylor",)

    def score(self, group: GroupTensors) -> Floats:
        """See `Criterion.score`."""
        readers = group.steps("input_taylor", "input")
        means = [np.abs(np.concatenate(steps)).mean(axis=0) for steps in readers]
        return over_norm(np.mean(means, axis=0))


class SignedTaylor(Criterion):
    """The rank of Amazon SageMaker Debugger's iterative pruning example.

    Activation times gradient, averaged with its sign over examples and space, summed over steps;
    the absolute value of the sum, divided by the L2 norm of the layer's. Unlike with
    `TaylorActivation`, examples with opposite signs cancel.
    """

    name = "taylor_signed"
    measurements = ("input_taylor",)

    def score(self, group: GroupTensors) -> Floats:
        """See `Criterion.score`."""
        readers = group.steps("input_taylor", "input")
        sums = [np.abs(np.sum([step.mean(axis=0) for step in steps], axis=0)) for steps in readers]
        return over_norm(np.mean(sums, axis=0))


class TaylorWeight(Criterion):
    """Squared first-order change of the loss if a filter's weights were zero.

    Molchanov et al., Importance Estimation for Neural Network Pruning, CVPR 2019, equations 7 and
    8: the mean over batches of the squared sum over the filter of weight times gradient. Filters
    that are tied together are added before squaring.
    """

    name = "taylor_weight"
    measurements = ("weight_taylor",)

    def score(self, group: GroupTensors) -> Floats:
        """See `Criterion.score`."""
        members = group.steps("weight_taylor", "filter")
        totals = [np.sum(step, axis=0) for step in zip(*members, strict=True)]
        means: Floats = np.mean(np.square(totals), axis=0)
        return means


def over_norm(scores: Floats) -> Floats:
    """Divide scores by their L2 norm, unless all are 0.

    Args:
        scores: float64 [channels].
    """
    norm = np.linalg.norm(scores)
    return scores / norm if norm > 0 else scores
