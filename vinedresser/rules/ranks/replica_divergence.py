"""Rule: data-parallel replicas no longer have the same weights."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from vinedresser.rules.need import Need
from vinedresser.rules.ranks.aligned import Aligned, RankRule, deviating, told
from vinedresser.rules.signals.parameters.learning_rate import LEARNING_RATE
from vinedresser.store.finding import Finding, Severity
from vinedresser.store.reading.step import Step

# Factor of the patience if the ranks communicate: weights may be averaged now and then.
_LONGER = 3
# Steps without any communication after which weights are not averaged.
_ALONE = 600
_CAPTURED = r"^ranks/(?:.*\.)?(?:collectives|reduced)$"
_REDUCED = re.compile(r"^ranks/(?:.*\.)?reduced$")
_COLLECTIVES = re.compile(r"^ranks/(?:.*\.)?collectives$")
# Steps between two captures of the optimizer's settings, which others capture more often.
_SETTINGS = 100
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


class ReplicaDivergence(RankRule):
    """A weight or bias differs between ranks.

    The rule compares CRC-32C fingerprints of the parameters of all ranks at the same step. All
    ranks add the same reduced gradient to the same weights, so not a single bit may differ. Fires
    when a parameter that was equal on all ranks differs

    - at one check, if `DistributedDataParallel` reduces the gradients of all models over all ranks
      (``ranks/reduced``), or if its gradient differs, too, and other gradients do not;
    - else at ``patience`` consecutive checks.

    If all parameters and their gradients differ without that wrapper, weights may be averaged now
    and then. Then it warns, if the ranks communicate nevertheless after three times as many checks,
    or at the end of a shorter training, and ends the run only if they have not communicated for 600
    steps.

    The finding says what set the replicas apart (`kind` in its evidence): fingerprints of the
    gradients tell whether these were reduced, and those of the weights which rank updates them.

    Without the wrapper, a parameter that differs at the first check is treated as a shard, and a
    model with shards is not compared, unless all ranks have the same gradients: then replicas start
    apart. A parameter that becomes equal again belongs to a training that averages its weights now
    and then; it is not compared from then on. Disable the rule for such a training if averages and
    checks fall on different steps. Shards of distributed tensors (`fully_shard`, tensor parallel)
    have no fingerprints; the other parameters of such a model are compared.

    Args:
        every: train steps between checks.
        patience: number of consecutive checks.
    """

    severity = "stop"
    fault = "replica_divergence"
    position = 460

    def __init__(self, every: int = 50, patience: int = 2) -> None:
        super().__init__(patience, every)
        self.needs = (
            *(
                Need(name, every, ("fingerprint",), rarer_from=0, required=False)
                for name in ("weights", "biases", "gradients")
            ),
            Need("replicas", every, rarer_from=0, regex=_CAPTURED, required=False),
            Need("learning_rate", _SETTINGS, regex=LEARNING_RATE, required=False),
        )
        self._replicas = Aligned[_Replica]()
        self._settings = Aligned[dict[str, float]]()
        # Of all ranks at the latest step at which they are known.
        self._set: list[dict[str, float]] = []
        self._before: list[_Replica] = []
        self._known: set[str] = set()
        # Steps at which a parameter differed.
        self._differ: dict[str, list[int]] = {}
        # Some parameters differed at the first check, and their gradients did not.
        self._apart = False
        # Numbers of collectives when all weights and gradients differed first.
        self._counts: list[float | None] = []
        self._warned = False
        # What is said of them if the training ends now.
        self._at_end: Finding | None = None

    def update(self, step: Step) -> Finding | None:
        """See `Rule.update`: a warning may come before the finding that ends the run."""
        given = step.scalars_of("learning_rate")
        if self._done or self.world < 2 or step.mode != "train":
            return None
        if given:
            self._set = self._settings.add(step, given, self.world) or self._set
        return self.watch(step) if self.is_due(step) else None

    def watch(self, step: Step) -> Finding | None:
        """See `OnceRule.watch`: here, of all ranks."""
        weights = {
            **step.reduction_of("weights", "fingerprint"),
            **step.reduction_of("biases", "fingerprint"),
        }
        if not weights:
            return None
        now = self._replicas.add(step, _replica(step, weights), self.world)
        if now is None:
            return None
        finding = self._compare(step, now)
        self._before = now
        return finding

    def at_end(self) -> Finding | None:
        """See `OnceRule.at_end`: weights that were not averaged until then."""
        return self._at_end

    def _compare(self, step: Step, now: Sequence[_Replica]) -> Finding | None:
        self._at_end = None
        reduced = all(one.reduced for one in now)
        common = set.intersection(*(set(one.weights) for one in now))
        names = [name for name in now[0].weights if name in common]
        different = [name for name in names if _unlike(name, now)]
        fresh = [name for name in different if name not in self._known]
        again = any(name in self._differ for name in names if name not in different)
        if (fresh or self._apart) and not reduced:
            self._apart = _same_gradients(different, now, self._before)
            self._done = not self._apart
        if again and not reduced:
            self._done = True
        if self._done:
            return None
        self._known.update(names)
        for name in different:
            self._differ.setdefault(name, []).append(step.step)
        if len(different) == len(names) and not (reduced or self._apart or _alike(different, now)):
            return self._unreduced(step, names, now)
        # In model order. A gradient that differs beside others that do not was not reduced.
        sure = [
            name
            for name in different
            if reduced
            or _unlike(name, now, gradient=True)
            or len(self._differ[name]) >= self.patience
        ]
        if not sure:
            return None
        self._done = True
        return self._finding(step, sure, now, whole=len(sure) == len(names))

    def _unreduced(self, step: Step, names: list[str], now: Sequence[_Replica]) -> Finding | None:
        """Return the finding of replicas that train apart, as far as weights are not averaged."""
        if not self._counts:
            self._counts = [one.collectives for one in self._before]
        communicate = None in self._counts or self._counts != [one.collectives for one in now]
        seen = min(len(self._differ[name]) for name in names)
        since = min(self._differ[name][0] for name in names)
        if not communicate and step.step - since >= _ALONE:
            self._done = True
            return self._finding(step, names, now, whole=True)
        if self._warned:
            return None
        warning = self._finding(step, names, now, whole=True, severity=self.without_stop)
        if communicate and seen < self.patience * _LONGER:
            self._at_end = warning if seen >= self.patience else None
            return None
        self._warned = True
        return warning

    def _finding(
        self,
        step: Step,
        names: list[str],
        now: Sequence[_Replica],
        *,
        whole: bool,
        severity: Severity | None = None,
    ) -> Finding:
        since = min(self._differ[name][0] for name in names)
        name = next(one for one in names if self._differ[one][0] == since)
        found = _divergence_of(
            names, now, self._before, since=since, whole=whole, settings=self._set
        )
        prints = [int(one.weights[name]) for one in now]
        odd = list(found.ranks) or deviating(prints)
        who = f"{told(odd)} differs" if odd else "the ranks differ"
        since_when = f"step {since} (equal at step {since - self.every})" if since else "the start"
        more = f", and {len(names) - 1} other tensors too" if len(names) > 1 else ""
        return self.found(
            step,
            since=since,
            rank=odd[0] if odd else 0,
            tensor=name,
            statistic="fingerprint",
            value=float(len(names)),
            threshold=0.0,
            severity=severity,
            confidence=0.95 if severity is None else 0.7,
            seen=f"{name}: {who} since {since_when}{more}; {len(now[0].weights)} tensors compared",
            cause=found.cause,
            remedy=found.remedy,
            evidence={
                "kind": found.kind,
                "ranks": odd,
                "fingerprints": {str(rank): value for rank, value in enumerate(prints)},
                "tensors": names[:50],
            },
        )


def _replica(step: Step, weights: dict[str, float]) -> _Replica:
    reduced = [value for name, value in step.scalars.items() if _REDUCED.match(name)]
    counts = [value for name, value in step.scalars.items() if _COLLECTIVES.match(name)]
    gradients = step.reduction_of("gradients", "fingerprint")
    return _Replica(
        weights,
        {name.partition("/")[2]: value for name, value in gradients.items()},
        bool(reduced) and all(reduced),
        max(counts, default=None),
    )


def _alike(names: Sequence[str], now: Sequence[_Replica]) -> bool:
    """Return whether weights have the same gradients on all ranks, as far as these are known."""
    known = bool(now[0].gradients)
    return known and not any(_unlike(name, now, gradient=True) for name in names)


def _same_gradients(
    names: Sequence[str], now: Sequence[_Replica], before: Sequence[_Replica]
) -> bool:
    """Return whether weights that differ have the same gradients on all ranks.

    Those of shards differ, unless they are zero at all steps.
    """
    paths = [name.partition("/")[2] for name in names]
    if not all(path in one.gradients for path in paths for one in now):
        return False
    moves = not before or any(
        now[0].gradients[path] != before[0].gradients.get(path) for path in paths
    )
    return moves and not any(_unlike(name, now, gradient=True) for name in names)


@dataclass(frozen=True)
class _Replica:
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
class _Divergence:
    """What has set the replicas apart.

    Attributes:
        kind: the cause, in one word.
        remedy: what to change.
        ranks: ranks that differ from the others, if that is known.
    """

    kind: _Kind
    cause: str
    remedy: str
    ranks: tuple[int, ...] = ()


def _unlike(name: str, replicas: Sequence[_Replica], *, gradient: bool = False) -> bool:
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


def _divergence_of(
    names: Sequence[str],
    now: Sequence[_Replica],
    before: Sequence[_Replica],
    *,
    since: int,
    whole: bool,
    settings: Sequence[dict[str, float]],
) -> _Divergence:
    """Return what has set replicas apart.

    Args:
        names: weights that differ, in model order.
        now: the replicas at the check at which the difference is certain.
        before: the same at the check before.
        since: first check with a difference.
        settings: settings of the optimizers of each rank at one step, by name; [] if not known.
    """
    again = _AGAIN.format(since)
    if since == 0:
        return _Divergence(
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
        return _Divergence(
            "not_updated",
            f"{told(still)} does not update {_some(names)}, and the others do: frozen or missing "
            "in the optimizer on that rank, or a copy that is not refreshed from master weights",
            "give the optimizers of all ranks the same parameters, and copy master weights to the "
            f"model on all ranks; {again}",
            tuple(still),
        )
    torn = [name for name in names if _unlike(name, now, gradient=True)]
    differ = {
        key: {rank: f"{one[key]:g}" for rank, one in enumerate(settings)}
        for key in (settings[0] if settings else ())
        if all(key in setting for setting in settings)
        and len({setting[key] for setting in settings}) > 1
    }
    if differ and not torn:
        key, values = next(iter(differ.items()))
        return _Divergence(
            "optimizer",
            f"the optimizers of the ranks have different settings: {key} is {told(values)}",
            f"set {key} alike on all ranks; {again}",
        )
    if torn and not whole:
        return _Divergence(
            "gradient_not_reduced",
            f"the gradient of {_some(torn)} is not reduced over the ranks, and others are",
            f"reduce the gradients of all parameters, that of {torn[0]} too; {again}",
        )
    if not whole:
        return _Divergence(
            "changed_on_one_rank",
            "this tensor was changed on one rank only: by code that runs on some ranks, by "
            "loading another checkpoint, or by a memory fault",
            f"find the code that writes {names[0]} on some ranks only; broadcast it from rank 0 "
            f"(torch.distributed.broadcast), or {again}",
        )
    return _of_all(torn, now, again)


def _of_all(torn: Sequence[str], now: Sequence[_Replica], again: str) -> _Divergence:
    """Return what has set replicas apart all of whose weights differ."""
    if not torn and now[0].gradients:
        return _Divergence(
            "updated_differently",
            "all ranks have the same gradients, but update their weights differently: another "
            "optimizer, another state of it, or noise of the rank's own",
            f"make the same optimizer on all ranks, and load its state on all ranks; {again}",
        )
    if all(one.reduced for one in now):
        return _Divergence(
            "hooks_lost",
            "DistributedDataParallel does not reduce the gradients: its hooks were lost when the "
            "parameters were replaced after wrapping, such as by model.double(), .half() or .to(), "
            "or each rank updates its weights differently",
            "change the type, device and parameters of the model first, then wrap it; restart from "
            "the first step",
        )
    return _Divergence(
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
