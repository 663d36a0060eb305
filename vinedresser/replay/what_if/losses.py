"""Other losses of the same outputs, whose values are on the scale of the present one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from torch import Tensor
from torch.nn import functional

from vinedresser.frameworks.loss_functions import measures_errors
from vinedresser.replay.what_if.functions_seen import Network, Targets
from vinedresser.replay.what_if.replaced_functions import Loss

__all__ = ["losses_for", "standardized_for"]

# Targets whose mean or deviation is within these limits need no other scale.
_LARGEST, _SMALLEST = 3.0, 0.1
_EPS = 1e-7


def losses_for(network: Network) -> Iterator[tuple[str, str, Loss]]:
    """Yield kind and words of a change, and the loss, for which there is a reason.

    The value of each is that of the present loss, with which it can be compared; only its gradients
    are those of another one.

    Args:
        network: what is known.
    """
    seen = network.targets
    if seen is None:
        return
    if seen.broadcast:
        yield "target shape", "targets in the shape of the outputs", _shaped
    if seen.summed:
        yield "loss reduction", "mean instead of sum as the loss", _mean
    if not measures_errors(seen.loss):
        return
    if seen.one_hot and network.width > 1:
        is_softmax = network.last is not None and network.last[1] == "softmax"
        words = f"cross-entropy instead of {seen.loss}"
        yield "loss", words, partial(_cross_entropy, probabilities=is_softmax)
    loss = standardized_for(seen)
    if loss is not None:
        mean, deviation = seen.mean, seen.deviation
        words = f"targets standardized; their mean is {mean:.3g}, their deviation {deviation:.3g}"
        yield "targets", words, loss


def standardized_for(seen: Targets) -> Loss | None:
    """Return the loss with targets of mean 0 and deviation 1; None if these are about so.

    Args:
        seen: what is known of the targets.
    """
    mean, deviation = seen.mean, seen.deviation
    usual = abs(mean) <= _LARGEST and _SMALLEST <= deviation <= _LARGEST
    if usual or deviation == 0 or not measures_errors(seen.loss):
        return None
    return partial(_standardized, mean=mean, deviation=deviation)


def _shaped(
    loss: Callable[..., Tensor], output: Tensor, target: Tensor, kwargs: dict[str, Any]
) -> Tensor:
    same = output.numel() == target.numel()
    return loss(output, target.reshape(output.shape) if same else target, **kwargs)


def _mean(
    loss: Callable[..., Tensor], output: Tensor, target: Tensor, kwargs: dict[str, Any]
) -> Tensor:
    return _with_value(
        loss(output, target, **{**kwargs, "reduction": "mean"}), loss(output, target, **kwargs)
    )


def _standardized(
    loss: Callable[..., Tensor],
    output: Tensor,
    target: Tensor,
    kwargs: dict[str, Any],
    *,
    mean: float,
    deviation: float,
) -> Tensor:
    return _with_value(
        loss(output, (target - mean) / deviation, **kwargs),
        loss(output * deviation + mean, target, **kwargs),
    )


def _cross_entropy(
    loss: Callable[..., Tensor],
    output: Tensor,
    target: Tensor,
    kwargs: dict[str, Any],
    *,
    probabilities: bool,
) -> Tensor:
    shares = (
        output.clamp(min=_EPS).log() if probabilities else functional.log_softmax(output, dim=-1)
    )
    return _with_value(-(target * shares).sum(-1).mean(), loss(output, target, **kwargs))


def _with_value(gradients: Tensor, value: Tensor) -> Tensor:
    """Return a loss with the gradients of one loss and the value of another."""
    return value.detach() + (gradients - gradients.detach())
