"""Comparing a replay with the recorded step, whatever the framework."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vinedresser.replay.results import Comparison, Outcome
from vinedresser.snapshots.record import SnapshotRecord, processor

if TYPE_CHECKING:
    from vinedresser.replay.keras_.recorded import RecordedKerasStep
    from vinedresser.replay.recorded import RecordedStep

__all__ = ["compare", "differing"]


def compare(
    step: RecordedStep | RecordedKerasStep,
    outcome: Outcome,
    digest: Callable[[Any], str],
    environment: dict[str, tuple[str, str]],
) -> Comparison:
    """Compare the outcome of a replay with what was recorded.

    Args:
        outcome: outcome of the step, run with the whole batch.
        digest: returns the SHA-256 of a tensor or an array of the framework.
        environment: what differs in the environment; see `differing`.
    """
    recorded = {
        (name, path): str(one.get("sha256"))
        for name, model in step.models.items()
        for path, one in model.gradients.items()
    }
    different = [
        f"{name}.{path}".lstrip(".")
        for name, path in recorded.keys() | outcome.gradients.keys()
        if recorded.get((name, path)) != outcome.gradients.get((name, path))
    ]
    same = _same_losses(step.losses, outcome.losses, digest)
    return Comparison(same, len(recorded), sorted(different), environment)


def _same_losses(
    recorded: Sequence[Sequence[Any]], losses: Sequence[Any], digest: Callable[[Any], str]
) -> bool | None:
    """Compare each loss with the recorded ones of the same call: a step may return any of them."""
    known = [
        [digest(value) for value in values if math.prod(value.shape) == 1] for values in recorded
    ]
    if len(losses) != len(known) or not all(known):
        return None
    return all(digest(one) in values for one, values in zip(losses, known, strict=True))


def differing(record: SnapshotRecord, now: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Return name, recorded and present value of what differs in the environment.

    Args:
        now: the present versions and settings, by name.
    """
    then = {**record.versions, **record.environment}
    now = {"processor": processor(), **now}
    return {
        name: (str(then[name]), str(now[name]))
        for name in then
        if name in now and str(then[name]) != str(now[name]) and name != "vinedresser"
    }
