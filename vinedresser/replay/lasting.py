"""Does what was wrong with a step last? The steps of all ranks, run again on one machine."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from vinedresser.replay.results import Comparison
from vinedresser.snapshots.reading import Snapshot
from vinedresser.snapshots.record import MEANS, Reason, SnapshotRecord

__all__ = ["Again", "conclusion", "run_again"]

# Share of a loss by which rounding on another machine may change it.
_CLOSE = 0.01


@dataclass(frozen=True)
class Again:
    """The step of a rank, run again.

    Attributes:
        comparison: how it compares with the training; gradients of several ranks are means.
        broken: whether gradients are not finite again.
        spoiled: name of a parameter that was not finite before the step, or "".
        unsure: why another result says nothing about machines, in words; "" if it does.
        close: whether each loss is that of the training up to rounding; None if none can be
            compared.
        losses: the losses, and those of the training, in words.
    """

    rank: int
    comparison: Comparison
    broken: bool
    spoiled: str
    unsure: str
    close: bool | None
    losses: tuple[str, str]


def run_again(opened: Snapshot, first: Any, replay: Callable[[Snapshot], Any]) -> list[Again]:
    """Return the step of a snapshot and those of the other ranks, run again.

    The loss of a rank does not depend on the others: of a step whose loss jumped, it is that of the
    snapshot only.

    Args:
        first: what its replay has returned.

    Raises:
        VinedresserError: a step cannot be run again.
    """
    others = opened.peers if _concerns_all(opened.record) else []
    # Each holds a model: one after the other.
    return [
        _again(opened, first, replay),
        *(_again(other, replay(other), replay) for other in others),
    ]


def _again(opened: Snapshot, found: Any, replay: Callable[[Snapshot], Any]) -> Again:
    comparison, broken = found.comparison, found.outcome.broken
    jump = opened.record.reason == "jump"
    unsure = ""
    if comparison.environment:
        name, (then, now) = next(iter(comparison.environment.items()))
        unsure = f"{name} is {now} here and was {then} in the training"
    elif inexact := [one for one in opened.record.inexact if one != MEANS]:
        unsure = inexact[0]
    elif (not broken or jump) and _values(replay(opened)) != _values(found):
        unsure = "two runs on this machine differ"
    recorded, now = found.step.losses, found.outcome.losses
    then = [one for values in recorded for one in _scalars(values)[:1]]
    return Again(
        opened.record.rank,
        comparison,
        broken,
        found.step.spoiled,
        unsure,
        None if comparison.losses is None else all(map(_close, recorded, now)),
        (_told_losses(_scalars(now)), _told_losses(then)),
    )


def _concerns_all(record: SnapshotRecord) -> bool:
    """Return whether a step is broken for all ranks if it is for one."""
    return record.world_size > 1 and record.reason != "jump"


def _close(recorded: Sequence[Any], now: Any) -> bool:
    """Return whether a loss is one of those of the same call in the training."""
    return any(
        math.isclose(one, value, rel_tol=_CLOSE)
        for one in _scalars(recorded)
        for value in _scalars([now])
    )


def _scalars(losses: Sequence[Any]) -> list[float]:
    """Return the losses with one element; a loss of each sample has more."""
    return [float(one) for one in losses if math.prod(one.shape) == 1]


def _told_losses(losses: Sequence[float]) -> str:
    return ", ".join(f"{one:.4g}" for one in losses)


def _values(found: Any) -> list[str]:
    """Return the losses of a replay, and the gradients that are not finite, as comparable texts."""
    nonfinite = sorted(map(str, found.outcome.nonfinite))
    return [*(repr(float(loss)) for loss in found.outcome.losses), *nonfinite]


def conclusion(ranks: Sequence[Again], world: int, reason: Reason = "nonfinite") -> str:
    """Return in words whether the data or the code break a step, a machine, or nothing any more.

    Args:
        ranks: the steps of the ranks whose snapshots there are.
        world: number of ranks of the training.
        reason: what was wrong with the step: gradients were not finite, or its loss jumped.
    """
    if reason == "jump":
        return _of_jump(ranks[0], world)
    return next(_reasons(sorted(ranks, key=lambda rank: rank.rank), world))


def _of_jump(again: Again, world: int) -> str:
    """Return in words whether the jump of a rank's loss lasts."""
    of = f" of {_told([again.rank])}" if world > 1 else ""
    here, then = again.losses
    if again.spoiled:
        return f"cannot tell what lasts: {again.spoiled} was not finite before the step"
    if again.close is None:
        return "cannot tell whether the jump lasts: the loss of the training cannot be compared"
    if again.close:
        return f"lasting: the same batch{of} has that loss again: the data, the weights or the code"
    if again.unsure:
        return f"cannot tell whether the jump is transient: {again.unsure}"
    return (
        f"not lasting: with the same batch{of} and weights, the loss is {here} here and was {then} "
        "in the training: a transient error, or its machine; run it again there"
    )


def _reasons(ranks: Sequence[Again], world: int) -> Iterator[str]:
    """Yield what can be said, the surest first; the last one can always be said."""
    one = world == 1
    for again in ranks:
        if again.spoiled:
            yield f"cannot tell what lasts: {again.spoiled} was not finite before the step"
    broken = [again.rank for again in ranks if again.broken]
    if broken:
        where = "" if one else f" of {_told(broken)}"
        yield f"lasting: the same batch{where} breaks the step again: the data or the code"
    for again in ranks:
        if again.unsure:
            yield f"cannot tell whether it is transient: {again.unsure}"
    if len(ranks) < world:
        yield f"cannot tell whether it is transient: {len(ranks)} of {world} ranks have a snapshot"
    other = [again.rank for again in ranks if again.comparison.losses is False]
    if other and len(other) == len(ranks) > 1:
        yield "cannot tell whether it is transient: no rank has the loss of the training here"
    if other and not one:
        yield (
            f"not lasting: the step is finite here, and {_told(other)} alone had another loss in "
            "the training: its machine"
        )
    yield (
        "not lasting: the step is finite here, with the same batch and weights"
        f"{' on all ranks' * (not one)}: a transient error, or the machine of the training; run it "
        "again there"
    )


def _told(ranks: Sequence[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"
