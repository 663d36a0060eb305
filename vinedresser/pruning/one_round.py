"""One round of pruning: rank, plan, remove, prove."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vinedresser.errors import PruningError
from vinedresser.plain_logs import plain_logger
from vinedresser.pruning.backend import Losses
from vinedresser.pruning.backends import backend_of
from vinedresser.pruning.cost import Cost
from vinedresser.pruning.criteria.criterion import (
    Criterion,
    Floats,
    GroupTensors,
    Measured,
    Measurement,
)
from vinedresser.pruning.criteria.registry import criterion_named
from vinedresser.pruning.group import Group, Role, layer_of
from vinedresser.pruning.latency import Latency
from vinedresser.pruning.plan import Plan
from vinedresser.pruning.proof import Proof, global_generators_kept, prove
from vinedresser.pruning.ranking import Removal, candidates, rank
from vinedresser.pruning.selection import NO_LIMITS, Limits
from vinedresser.pruning.targets import Targets, are_for_speed, planned
from vinedresser.store.reading.reader import Run

__all__ = ["CustomCriterion", "Pruned", "losses_by_count", "prune", "ranked"]

_LOG = plain_logger(__name__)

# Of a group's channels, to measure the loss without them.
_SHARES = (0.125, 0.25, 0.5, 0.75, 1.0)

CustomCriterion = Callable[[GroupTensors], Floats]
_ROLES: dict[Measurement, Role] = {"input_taylor": "input", "weight_taylor": "filter"}


@dataclass(frozen=True)
class Pruned:
    """A pruned model, and how it came about.

    Attributes:
        model: the pruned model, with the original's remaining weights. Train it with a new
            optimizer: an old one updates the original's parameters.
        plans: what was removed, round by round.
        proof: what was checked in the last round.
        before: cost before the last round.
        locked: groups that cannot be pruned, with the reason, by name.
        latency: what was measured in the last round, if it had a target by latency.
        notes: what of the model was not seen, one sentence each: layers that no run on the example
            reached, a training mode in which it does not run.
    """

    model: Any
    plans: tuple[Plan, ...]
    proof: Proof
    before: Cost
    after: Cost
    locked: dict[str, str]
    latency: Latency | None = None
    notes: tuple[str, ...] = ()


def prune(
    model: Any,
    example: Any,
    amount: int | str | Mapping[str, int] | None = None,
    *,
    parameters: int | None = None,
    macs: int | None = None,
    size_bytes: int | None = None,
    latency: float | None = None,
    criterion: str | Criterion | CustomCriterion = "l1",
    losses: Losses | Run | None = None,
    limits: Limits = NO_LIMITS,
    kinds: Collection[str] = ("filters",),
    ignore: Collection[str] = (),
    per_mac: bool | None = None,
) -> Pruned:
    """Remove the least important filters from a trained model.

    Args:
        model: torch.nn.Module or keras.Model, or the result of an earlier round; it is not changed.
        example: an input of the model: a tensor, a tuple of arguments, or a dict of keyword
            arguments.
        amount: number of filters to remove, or a share of them, such as "10%"; or a number for each
            group, by its name.
        parameters: number of parameters to get down to; with an amount, no more filters go than
            it takes to reach the targets.
        macs: multiply-accumulate operations to get down to.
        size_bytes: bytes of parameters and buffers to get down to.
        latency: instead of an amount, the share of the given model's latency for the example, on
            this machine, to get down to, between 0 and 1; see `vinedresser.pruning.targets`.
        criterion: name of a criterion, or an object or function that scores a group's channels.
        losses: for criteria that measure gradients: a function that is called with the model and
            yields the losses of some batches; or a run in which a hook has captured what they
            need of this model, the collections "input_taylor" or "weight_taylor".
        limits: what to leave.
        kinds: what to choose from: "filters" of convolutions, "units" of linear layers, "heads".
        ignore: layers to leave alone.
        per_mac: whether those filters go whose removal raises the loss least per operation saved.
            The losses are measured with each group pruned alone; the criterion only orders the
            filters of a group. None: with a target by operations or latency and no other, if
            `losses` is a function.

    Raises:
        PruningError: the model cannot be pruned this way, or a check of the result failed; the
            message says why. Nothing was changed.
    """
    earlier = model.plans if isinstance(model, Pruned) else ()
    removal = ranked(
        model,
        example,
        criterion=criterion,
        losses=losses,
        limits=limits,
        kinds=kinds,
        ignore=ignore,
    )
    prunable = removal.prunable
    targets = Targets(parameters, macs, size_bytes, latency)
    if per_mac is None:
        per_mac = are_for_speed(targets.given) and callable(losses)
    if per_mac:
        if not callable(losses):
            raise PruningError("per_mac measures losses: pass losses, a function")
        removal = replace(removal, losses=losses_by_count(removal, losses))
    plan, count, measured = planned(removal, example, amount, targets)
    pruned = prunable.removed(plan)
    # In blocks of `round_to` filters, fewer may go.
    expected = count if limits.round_to == 1 else plan.count
    proof = prove(prunable, plan, pruned, count=expected)
    locked = {group.name: group.locked for group in prunable.groups if group.locked}
    costs = removal.cost(), removal.cost(plan)
    for note in prunable.notes:
        _LOG.warning("%s", note)
    return Pruned(pruned, (*earlier, plan), proof, *costs, locked, measured, prunable.notes)


def ranked(
    model: Any,
    example: Any,
    *,
    criterion: str | Criterion | CustomCriterion,
    losses: Losses | Run | None,
    limits: Limits,
    kinds: Collection[str],
    ignore: Collection[str],
) -> Removal:
    """Return a model with the scores of its channels; see `prune`.

    Raises:
        PruningError: see `prune`.
    """
    if isinstance(model, Pruned):
        model = model.model
    backend = backend_of(model)
    prunable = backend.prunable(model, example)
    groups = candidates(prunable.groups, kinds=kinds, ignore=ignore)
    scorer = _criterion(criterion)
    measured = _measure(backend.measure, model, losses, groups, scorer)
    scores = rank(prunable.tensors(), groups, scorer, measured)
    return Removal(prunable, groups, scores, scorer.name, limits)


def losses_by_count(removal: Removal, losses: Losses) -> dict[str, dict[int, float]]:
    """Measure the loss with each group pruned alone, as Yang et al. (NetAdapt, ECCV 2018) do.

    Args:
        removal: the ranked model.
        losses: yields the losses of batches, the same ones each time.

    Returns:
        The mean loss by group and number of removed channels; infinite if one of the losses is not
        finite.

    Raises:
        PruningError: there is no batch, or a loss of the unpruned model is not finite.
    """
    backend = backend_of(removal.prunable.model)

    def mean_loss(model: Any) -> float:
        with global_generators_kept():
            found = backend.losses_of(model, losses)
        if not found:
            raise PruningError("losses: yields nothing; it must yield the losses of some batches")
        return float(np.mean(found)) if np.isfinite(found).all() else math.inf

    scanned = removal.scanned(mean_loss, _SHARES)
    if not math.isfinite(next(iter(scanned.values()))[0]):
        raise PruningError("losses: a loss of the unpruned model is not finite")
    return scanned


def _measure(
    measure: Callable[..., Measured],
    model: Any,
    losses: Losses | Run | None,
    groups: Sequence[Group],
    criterion: Criterion,
) -> Measured:
    if not criterion.measurements:
        return {}
    if losses is None:
        raise PruningError(
            f"criterion {criterion.name} measures gradients: pass losses, a function that is "
            "called with the model and yields the losses of some batches"
        )
    if isinstance(losses, Run):
        return _read_measured(losses, groups, criterion.measurements)
    return measure(model, losses, groups, criterion.measurements)


class _Custom(Criterion):
    """A criterion of the user's own."""

    def __init__(self, function: CustomCriterion) -> None:
        self.name = getattr(function, "__name__", type(function).__name__)  # type: ignore[misc]
        self._function = function

    def score(self, group: GroupTensors) -> Floats:
        """See `Criterion.score`."""
        return self._function(group)


def _criterion(given: str | Criterion | CustomCriterion) -> Criterion:
    if isinstance(given, str):
        return criterion_named(given)
    return given if isinstance(given, Criterion) else _Custom(given)


def _tensors(
    groups: Iterable[Group], measurements: Iterable[Measurement]
) -> dict[str, tuple[Measurement, str]]:
    """Return the names under which a hook captures what is to be measured.

    Returns:
        By full name of the captured tensor, the measurement and the weight that it belongs to.
    """
    found: dict[str, tuple[Measurement, str]] = {}
    for measurement in measurements:
        for group in groups:
            for member in group.of_role(_ROLES[measurement]):
                # The input belongs to the layer, the other products to the weight itself.
                path = member.tensor if measurement == "weight_taylor" else layer_of(member.tensor)
                found[f"{measurement}/{path}"] = measurement, member.tensor
    return found


def _read_measured(
    run: Run, groups: Sequence[Group], measurements: Sequence[Measurement]
) -> Measured:
    """Return what a run has measured.

    Args:
        run: a run that captured the collections of that name at some steps.

    Raises:
        StoreError: the run cannot be read.
    """
    measured: dict[Measurement, dict[str, list[Floats]]] = {one: {} for one in measurements}
    names = set(run.tensor_names())
    for name, (measurement, tensor) in _tensors(groups, measurements).items():
        # A layer that is called several times has a number from the second call on.
        calls = [one for one in names if one == name or one.startswith(f"{name}#")]
        if calls:
            steps = set.intersection(*(set(run.tensor(call).steps().tolist()) for call in calls))
            measured[measurement][tensor] = [_step(run, calls, step) for step in sorted(steps)]
    for one, found in measured.items():
        if not any(found.values()):
            raise PruningError(f"{run.path}: no {one} of this model; capture the collection {one}")
    return measured


def _step(run: Run, calls: Sequence[str], step: int) -> Floats:
    """Return what all calls of a layer measured at a step, one after the other."""
    values = [np.asarray(run.tensor(call).value(step), dtype=np.float64) for call in calls]
    for call, value in zip(calls, values, strict=True):
        if not np.isfinite(value).all():
            raise PruningError(f"{run.path}: {call}, step {step}: not finite")
    return values[0] if len(values) == 1 else np.concatenate(values)
