"""When a pruning ends, and which of its rounds is the result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from vinedresser.pruning.folders import ResultRecord
from vinedresser.pruning.latency import Share
from vinedresser.pruning.rounds.round_record import RoundRecord
from vinedresser.pruning.rounds.settings import PruneTable, Target

__all__ = ["Ending", "choose", "ending", "missed"]


class Ending(NamedTuple):
    """Why no other round begins.

    Attributes:
        rule: "target_reached", "accuracy_drop" or "rounds".
        reason: what was seen, in one sentence.
    """

    rule: str
    reason: str


def ending(rounds: Sequence[RoundRecord], table: PruneTable) -> Ending | None:
    """Return why a pruning ends after its last round; None if it continues.

    Args:
        rounds: all rounds so far, from round 0.
        table: settings of the pruning.
    """
    original, last = rounds[0], rounds[-1]
    if last.number == 0:
        return None
    if dropped := _dropped(rounds, last, table):
        return Ending("accuracy_drop", f"round {last.number}: {dropped}")
    targets = table.targets(original.costs)
    if targets and not _missing(last, targets):
        reached = ", ".join(_shown(key, last, original) for key in targets)
        return Ending("target_reached", f"round {last.number}: {reached}")
    if last.number >= table.rounds:
        return Ending("rounds", f"all {table.rounds} rounds are done")
    return None


def choose(rounds: Sequence[RoundRecord], table: PruneTable) -> ResultRecord | None:
    """Return the round that is the result; None if no round was finished.

    Of the rounds within the limits of the figure, those that reach all targets come first, then the
    smaller models, by the first of the costs with a target or else by the number of parameters.

    Args:
        rounds: all rounds, from round 0.
        table: settings of the pruning.
    """
    if not rounds:
        return None
    original = rounds[0]
    targets = table.targets(original.costs)
    by: Target = next(iter(targets), "parameters")
    within = [one for one in rounds if not _dropped(rounds, one, table)]

    def order(one: RoundRecord) -> tuple[int, float]:
        return len(_missing(one, targets)), one.costs[by]

    best = min(within, key=order)
    if best.number == 0:
        none = "no round was completed" if len(rounds) == 1 else "no round is within the limits"
        said = f"{none}; this is the unpruned model"
    else:
        said = f"the smallest model of the {len(within) - 1} within the limits: {best.figure:.6g}"
        said += f" against {original.figure:.6g} unpruned, {_shown(by, best, original)}"
    if unreached := missed(rounds, best.number, table):
        said += f"; not reached: {unreached}"
    return ResultRecord(best.number, said)


def missed(rounds: Sequence[RoundRecord], number: int, table: PruneTable) -> str:
    """Return which targets a round does not reach, and what kept the pruning from them.

    Args:
        rounds: all rounds, from round 0; the last one may break the limits of the figure.
        table: settings of the pruning.

    Returns:
        One sentence; "" if it reaches all.
    """
    original, last = rounds[0], rounds[-1]
    targets = table.targets(original.costs)
    keys = _missing(rounds[number], targets)
    if not keys:
        return ""
    wanted = " and ".join(
        f"{Share(targets[key] / original.costs[key])} of its {key}" for key in keys
    )
    dropped = _dropped(rounds, last, table)
    if not dropped:
        return f"{wanted}, by the end of round {last.number}"
    there = ", ".join(_shown(key, last, original) for key in keys)
    return f"{wanted}, within the limits: round {last.number} ({there}): {dropped}"


def _dropped(rounds: Sequence[RoundRecord], one: RoundRecord, table: PruneTable) -> str:
    """Return by how much a round's figure dropped, if that is too much; "" if not."""
    if one.number == 0:
        return ""
    compared = (
        (table.max_drop, rounds[0].figure, "max_drop", "unpruned"),
        (table.max_round_drop, rounds[one.number - 1].figure, "max_round_drop", "before"),
    )
    for limit, reference, key, when in compared:
        # A rounding error is no drop.
        if limit is not None and reference - one.figure > limit + 1e-9 * abs(reference):
            return f"{one.figure:.6g}, {reference:.6g} {when}; {key} is {limit:g}"
    return ""


def _missing(one: RoundRecord, targets: dict[Target, float]) -> list[Target]:
    """Return the targets that a round does not reach, or of which that cannot be told."""
    return [
        key
        for key, wanted in targets.items()
        if one.costs[key] > wanted or (key == "latency" and not one.share_of_latency.is_clear)
    ]


def _shown(key: Target, one: RoundRecord, original: RoundRecord) -> str:
    share = Share(one.costs[key] / original.costs[key])
    return f"{one.share_of_latency if key == 'latency' else share} of its {key}"
