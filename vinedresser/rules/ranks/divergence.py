"""What has set replicas apart, from their weights, gradients and optimizers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from vinedresser.rules.ranks.aligned import told

__all__ = ["Divergence", "Replica", "divergence_of", "unlike"]

_Kind = Literal[
    "start_apart",
    "not_updated",
    "optimizer",
    "gradient_not_reduced",
    "gradients_not_reduced",
    "hooks_lost",
    "updated_differently",
    "changed_on_one_rank",
]
_AGAIN = "restart from the checkpoint before step {}"


@dataclass(frozen=True)
class Replica:
    """The model of one rank at one step.

    Attributes:
        weights: fingerprints of weights and biases, by name.
        gradients: fingerprints of the gradients that the optimizer consumes, by path of the weight.
        reduced: whether `DistributedDataParallel` should reduce all gradients over all ranks.
        collectives: number of collectives that the rank has begun so far; None: not known.
    """

    weights: dict[str, float]
    gradients: dict[str, float]
    reduced: bool
    collectives: float | None


@dataclass(frozen=True)
class Divergence:
    """What has set the replicas apart.

    Attributes:
        kind: the cause, in one word.
        cause: the cause.
        remedy: what to change.
        ranks: ranks that differ from the others, if that is known.
    """

    kind: _Kind
    cause: str
    remedy: str
    ranks: tuple[int, ...] = ()


def unlike(name: str, replicas: Sequence[Replica], *, gradient: bool = False) -> bool:
    """Return whether a weight, or the gradient of one, differs between replicas.

    Args:
        replicas: one for each rank.
        gradient: compare its gradients; they do not differ if a rank has none.
    """
    path = name.partition("/")[2]
    values = [
        replica.gradients.get(path) if gradient else replica.weights[name] for replica in replicas
    ]
    return None not in values and len(set(values)) > 1


def divergence_of(
    names: Sequence[str],
    now: Sequence[Replica],
    before: Sequence[Replica],
    *,
    since: int,
    whole: bool,
    settings: Sequence[dict[str, float]],
) -> Divergence:
    """Return what has set replicas apart.

    Args:
        names: weights that differ, in model order.
        now: the replicas at the check at which the difference is certain.
        before: the same at the check before.
        since: first check with a difference.
        whole: whether all weights differ.
        settings: settings of the optimizers of each rank at one step, by name; [] if not known.
    """
    again = _AGAIN.format(since)
    if since == 0:
        return Divergence(
            "start_apart",
            "the ranks start with different weights: each rank initialised or loaded its own, or "
            "did so after DistributedDataParallel had made them equal",
            "initialise and load weights before wrapping the model, or load the same file on all "
            "ranks (or seed all ranks alike, or broadcast the weights from rank 0)",
        )
    still = [
        rank
        for rank, (new, old) in enumerate(zip(now, before, strict=True))
        if all(new.weights[name] == old.weights.get(name) for name in names)
    ]
    if 0 < len(still) < len(now):
        return Divergence(
            "not_updated",
            f"{told(still)} does not update {_some(names)}, and the others do: frozen or missing "
            "in the optimizer on that rank, or a copy that is not refreshed from master weights",
            "give the optimizers of all ranks the same parameters, and copy master weights to the "
            f"model on all ranks; {again}",
            tuple(still),
        )
    torn = [name for name in names if unlike(name, now, gradient=True)]
    differ = {
        key: {rank: f"{one[key]:g}" for rank, one in enumerate(settings)}
        for key in (settings[0] if settings else ())
        if all(key in setting for setting in settings)
        and len({setting[key] for setting in settings}) > 1
    }
    if differ and not torn:
        key, values = next(iter(differ.items()))
        return Divergence(
            "optimizer",
            f"the optimizers of the ranks have different settings: {key} is {told(values)}",
            f"set {key} alike on all ranks; {again}",
        )
    if torn and not whole:
        return Divergence(
            "gradient_not_reduced",
            f"the gradient of {_some(torn)} is not reduced over the ranks, and others are",
            f"reduce the gradients of all parameters, that of {torn[0]} too; {again}",
        )
    if not whole:
        return Divergence(
            "changed_on_one_rank",
            "this tensor was changed on one rank only: by code that runs on some ranks, by "
            "loading another checkpoint, or by a memory fault",
            f"find the code that writes {names[0]} on some ranks only; broadcast it from rank 0 "
            f"(torch.distributed.broadcast), or {again}",
        )
    return _of_all(torn, now, again)


def _of_all(torn: Sequence[str], now: Sequence[Replica], again: str) -> Divergence:
    """Return what has set replicas apart all of whose weights differ."""
    if not torn and now[0].gradients:
        return Divergence(
            "updated_differently",
            "all ranks have the same gradients, but update their weights differently: another "
            "optimizer, another state of it, or noise of the rank's own",
            f"make the same optimizer on all ranks, and load its state on all ranks; {again}",
        )
    if all(one.reduced for one in now):
        return Divergence(
            "hooks_lost",
            "DistributedDataParallel does not reduce the gradients: its hooks were lost when the "
            "parameters were replaced after wrapping, such as by model.double(), .half() or .to(), "
            "or each rank updates its weights differently",
            "change the type, device and parameters of the model first, then wrap it; restart from "
            "the first step",
        )
    return Divergence(
        "gradients_not_reduced",
        "gradients are not reduced over the ranks: the model is called without its "
        "DistributedDataParallel wrapper, or always within no_sync",
        "call the wrapped model instead of model.module, and step after a backward pass "
        f"outside no_sync; {again}; if the script averages weights at long intervals, disable this "
        "rule",
    )


def _some(names: Sequence[str]) -> str:
    rest = len(names) - 1
    return f"{names[0]} and {rest} more" if rest else names[0]
