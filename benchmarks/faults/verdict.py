"""Findings of vinedresser and the peers on one training."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from benchmarks.faults.classes import classes_of, right_words
from vinedresser.rules.causes.root_cause import root_causes
from vinedresser.store.finding import Finding

if TYPE_CHECKING:
    from benchmarks.faults.experiments import Experiment
    from benchmarks.faults.peers import Alarm

__all__ = ["Outcome", "Verdict"]

_KEPT = ("id", "seed", "faulty", "fault_class", "steps")


@dataclass(frozen=True)
class Outcome:
    """Outcome of a training.

    Attributes:
        as_expected: whether the expectation of the case holds, or it has none.
        measured: accuracy or R², whether a loss was not finite, and the measures of the case.
    """

    as_expected: bool
    measured: dict[str, float]

    def in_words(self) -> str:
        """Return the measures as text, such as ``acc 0.98, val_acc 0.96``."""
        return ", ".join(
            f"{name} {value:.3g}" for name, value in self.measured.items() if not math.isnan(value)
        )


@dataclass(frozen=True)
class Verdict:
    """One training of one seed, judged.

    Attributes:
        id: name of the case.
        seed: seed of the training.
        faulty: whether the training has a fault.
        fault_class: class of the fault.
        steps: steps of the whole training.
        outcome: outcome of the training.
        findings: findings of vinedresser's rules, in order.
        peers: alarms by peer, in the order of the steps.
        seconds: duration of the training, including capture.
        epoch: steps of the first epoch; 0 if the training has no epochs.
        experiment: the changes that were tried; None if none were.
    """

    id: str
    seed: int
    faulty: bool
    fault_class: str
    steps: int
    outcome: Outcome
    findings: tuple[Finding, ...]
    peers: dict[str, list[Alarm]] = field(default_factory=dict)
    seconds: float = 0.0
    epoch: int = 0
    experiment: Experiment | None = None

    def without(self, left_out: Callable[[Finding], bool]) -> Verdict:
        """Return the verdict without some of its findings."""
        return replace(self, findings=tuple(one for one in self.findings if not left_out(one)))

    def to_json(self) -> dict[str, Any]:
        """Return the case and its findings for `from_json`, without peers and experiments."""
        kept = {name: getattr(self, name) for name in _KEPT}
        return {
            **kept,
            "as_expected": self.outcome.as_expected,
            "findings": [finding.to_json() for finding in self.findings],
        }

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Verdict:
        """Return the verdict of `to_json`; the outcome has no measures."""
        findings = tuple(Finding.from_json(one) for one in document["findings"])
        kept = {name: document[name] for name in _KEPT}
        return cls(**kept, outcome=Outcome(document["as_expected"], {}), findings=findings)

    @property
    def alarms(self) -> list[Finding]:
        """Findings of severity stop or warning, including those about the rules themselves."""
        return [finding for finding in self.findings if finding.severity in ("stop", "warning")]

    @property
    def signs(self) -> list[Finding]:
        """Alarms about the training, not about a rule that failed."""
        return [alarm for alarm in self.alarms if alarm.statistic or alarm.fault]

    @property
    def stop(self) -> Finding | None:
        """Finding that would have ended the run."""
        return next((sign for sign in self.signs if sign.severity == "stop"), None)

    @property
    def detected_at(self) -> int | None:
        """Step of the first sign; None if there is none."""
        return min((sign.step for sign in self.signs), default=None)

    @property
    def true_sign_at(self) -> int | None:
        """Step of the first sign of the right class; None if there is none."""
        right = right_words(self.fault_class)
        return min((sign.step for sign in self.signs if sign.fault in right), default=None)

    @property
    def roots(self) -> list[Finding]:
        """Root causes among the signs up to the stop, or among all signs, the gravest first."""
        seen = self.signs
        if self.stop:
            seen = seen[: _last_of_its_step(seen, self.stop)]
        return [cause.finding for cause in root_causes(seen)]

    @property
    def root(self) -> Finding | None:
        """The gravest of the root causes."""
        return next(iter(self.roots), None)

    @property
    def classes_named(self) -> int:
        """Number of the training's faults of which a root cause has the class, each another."""
        words = [right_words(one) for one in classes_of(self.fault_class)]
        said = [root.fault for root in self.roots]
        found = [[place for place, fault in enumerate(said) if fault in right] for right in words]
        if len(found) > 1 and all(found) and len({*found[0], *found[1]}) == 1:
            # One finding names one fault.
            return 1
        return sum(map(bool, found))

    @property
    def named(self) -> bool:
        """Whether the root cause has the right class."""
        return self.root is not None and self.root.fault in right_words(self.fault_class)

    @property
    def named_at(self) -> int | None:
        """Step from which the right class is the root cause of the signs so far; None if never."""
        right, seen = right_words(self.fault_class), self.signs
        for step in sorted({one.step for one in seen}) if self.named else ():
            if root_causes([one for one in seen if one.step <= step])[0].finding.fault in right:
                return step
        return None

    @property
    def saved(self) -> float:
        """Share of the steps that a stop would have saved."""
        return max(0.0, 1 - self.stop.step / self.steps) if self.stop else 0.0


def _last_of_its_step(findings: Iterable[Finding], stop: Finding) -> int:
    """Return the number of findings up to the end of the stop's step."""
    places = [n for n, one in enumerate(findings, 1) if one is stop or one.step <= stop.step]
    return max(places)
