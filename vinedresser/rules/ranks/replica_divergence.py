"""Rule: data-parallel replicas no longer have the same weights."""

from __future__ import annotations

import re
from collections.abc import Sequence

from vinedresser.rules.need import Need
from vinedresser.rules.ranks.aligned import Aligned, RankRule, deviating, told
from vinedresser.rules.ranks.divergence import Replica, divergence_of, unlike
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
        self._replicas = Aligned[Replica]()
        self._settings = Aligned[dict[str, float]]()
        # Of all ranks at the latest step at which they are known.
        self._set: list[dict[str, float]] = []
        self._before: list[Replica] = []
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

    def _compare(self, step: Step, now: Sequence[Replica]) -> Finding | None:
        self._at_end = None
        reduced = all(one.reduced for one in now)
        common = set.intersection(*(set(one.weights) for one in now))
        names = [name for name in now[0].weights if name in common]
        different = [name for name in names if unlike(name, now)]
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
            or unlike(name, now, gradient=True)
            or len(self._differ[name]) >= self.patience
        ]
        if not sure:
            return None
        self._done = True
        return self._finding(step, sure, now, whole=len(sure) == len(names))

    def _unreduced(self, step: Step, names: list[str], now: Sequence[Replica]) -> Finding | None:
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
        now: Sequence[Replica],
        *,
        whole: bool,
        severity: Severity | None = None,
    ) -> Finding:
        since = min(self._differ[name][0] for name in names)
        name = next(one for one in names if self._differ[one][0] == since)
        found = divergence_of(
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


def _replica(step: Step, weights: dict[str, float]) -> Replica:
    reduced = [value for name, value in step.scalars.items() if _REDUCED.match(name)]
    counts = [value for name, value in step.scalars.items() if _COLLECTIVES.match(name)]
    gradients = step.reduction_of("gradients", "fingerprint")
    return Replica(
        weights,
        {name.partition("/")[2]: value for name, value in gradients.items()},
        bool(reduced) and all(reduced),
        max(counts, default=None),
    )


def _alike(names: Sequence[str], now: Sequence[Replica]) -> bool:
    """Return whether weights have the same gradients on all ranks, as far as these are known."""
    known = bool(now[0].gradients)
    return known and not any(unlike(name, now, gradient=True) for name in names)


def _same_gradients(
    names: Sequence[str], now: Sequence[Replica], before: Sequence[Replica]
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
    return moves and not any(unlike(name, now, gradient=True) for name in names)
