"""How much each group suffers from pruning: accuracy at some shares of removed channels."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from vinedresser.pruning.backend import Losses
from vinedresser.pruning.criteria.criterion import Criterion
from vinedresser.pruning.one_round import CustomCriterion, ranked
from vinedresser.pruning.selection import NO_LIMITS, Limits
from vinedresser.store.reading.reader import Run

__all__ = ["amounts_within", "scan"]


def scan(
    model: Any,
    example: Any,
    evaluate: Callable[[Any], float],
    *,
    shares: Sequence[float] = (0.1, 0.25, 0.5),
    criterion: str | Criterion | CustomCriterion = "l1",
    losses: Losses | Run | None = None,
    limits: Limits = NO_LIMITS,
    kinds: Collection[str] = ("filters",),
    ignore: Collection[str] = (),
) -> dict[str, dict[int, float]]:
    """Evaluate a model with each group pruned alone, without fine-tuning.

    Args:
        model: see `prune`.
        example: see `prune`.
        evaluate: returns a figure of a model, such as its accuracy.
        shares: shares of each group's channels to remove, between 0 and 1.
        criterion: see `prune`.
        losses: see `prune`.
        limits: see `prune`.
        kinds: see `prune`.
        ignore: see `prune`.

    Returns:
        The figure by group and number of removed channels, at 0 the unpruned model's.

    Raises:
        PruningError: see `prune`.
    """
    removal = ranked(
        model,
        example,
        criterion=criterion,
        losses=losses,
        limits=limits,
        kinds=kinds,
        ignore=ignore,
    )
    return removal.scanned(evaluate, shares)


def amounts_within(scanned: dict[str, dict[int, float]], drop: float) -> dict[str, int]:
    """Return the largest scanned amount of each group at which the figure drops little enough.

    Args:
        scanned: result of `scan`, of a figure of which more is better.
        drop: the most that the figure may drop, in its own unit.

    Returns:
        Number of channels by group, for `prune`; groups that suffer from any amount are absent.
    """
    amounts = {
        name: max(count for count, figure in figures.items() if figure >= figures[0] - drop)
        for name, figures in scanned.items()
    }
    return {name: count for name, count in amounts.items() if count}
