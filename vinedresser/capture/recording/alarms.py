"""What a guard has seen, in the words of its framework."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vinedresser.capture.recording.batch_source import BatchSource

__all__ = ["Alarm", "gradient_alarm"]


@dataclass(frozen=True)
class Alarm:
    """Values that are not finite before an update.

    Attributes:
        tensors: full name and number of non-finite entries of each affected tensor, at least one;
            the last is that of the finding.
        seen: what was seen, with the step.
        cause: the likely cause.
        factory: what builds the step again, `module:function`, if it is known; else "".
        names: what that command names.
    """

    tensors: Sequence[tuple[str, int]]
    seen: str
    cause: str
    factory: str
    names: str


def gradient_alarm(
    tensors: Sequence[tuple[str, int]],
    losses: Sequence[tuple[str, float]],
    step: int,
    sources: Iterable[BatchSource | None],
) -> Alarm:
    """Return the alarm of gradients of a neural network.

    Args:
        tensors: full name and number of non-finite entries of each affected gradient, in the order
            of the forward pass.
        losses: name and value of each loss of the step.
        sources: where the batches of the step come from; None for one that is not known.
    """
    # The backward pass reaches the last layers first.
    name, _ = tensors[-1]
    others = f" and {len(tensors) - 1} other gradients" if len(tensors) > 1 else ""
    finite = all(abs(value) < float("inf") for _, value in losses)
    told = ", ".join(f"{word} is {value:.4g}" for word, value in losses)
    return Alarm(
        tensors,
        f"{name}{others} are not finite at step {step}, before the update"
        + (f"; {told}" if told else "")
        + "".join(f"; its batch: {source.origins}" for source in sources if source is not None),
        "the loss is finite but its derivative is not: a norm, square root or power at "
        "zero, or 0 * inf after torch.where"
        if finite and losses
        else "the forward pass or the loss is not finite",
        "",
        "the operation, its line and the sample",
    )
