"""Rules that confirm a symptom over several steps and by the outcome."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from vinedresser.rules.base import OnceRule
from vinedresser.rules.faults import Fault
from vinedresser.rules.patience import Patience
from vinedresser.rules.signals.outcomes.outcome import Outcome
from vinedresser.rules.signals.outcomes.verdict import Verdict
from vinedresser.store.finding import Finding, Severity
from vinedresser.store.reading.step import Step

__all__ = ["Symptom", "SymptomRule"]


@dataclass(frozen=True)
class Symptom:
    """An observation at one step, before it is confirmed; see `Finding` for the attributes."""

    tensor: str
    statistic: str
    value: float
    threshold: float
    confidence: float
    seen: str
    cause: str
    remedy: str
    evidence: dict[str, Any] = field(default_factory=dict)
    fault: Fault | None = None
    correction: dict[str, Any] = field(default_factory=dict)

    def told(self, reason: str, **evidence: Any) -> dict[str, Any]:
        """Return arguments of `Rule.found`.

        Args:
            reason: reason for a poor outcome; "" if it is not poor or unknown.
            evidence: further evidence.
        """
        seen = f"{self.seen}; {reason}" if reason else self.seen
        return {**vars(self), "seen": seen, "evidence": {**self.evidence, **evidence}}


class SymptomRule(OnceRule):
    """Fires once, when the symptom was present at several looks in a row and the outcome is poor.

    A subclass selects the steps to look at (`looks_at`) and detects the symptom (`look`). Of one
    that is `certain` to do harm, the rule warns before the outcome is known.

    Args:
        patience: looks in a row.

    Attributes:
        gate: "poor": fire only in a training that does not learn as it should (`Outcome`), at a
            look or at the end; "none": fire in any training.
        soon: looks in a row after which the rule may warn of a symptom that is certain, if fewer
            than ``patience``.
        waits: give a training time whose loss may be on a plateau before learning (`Verdict`); for
            symptoms that occur on such a plateau.
        outcome: outcome of the training.

    Raises:
        ConfigError: ``patience`` is below 1.
    """

    gate: ClassVar[Literal["poor", "none"]] = "poor"
    waits: ClassVar[bool] = False
    soon: ClassVar[int | None] = None

    def __init__(self, patience: int) -> None:
        self.patience = patience
        self.outcome = Outcome()
        self._patience = Patience(patience)
        self._seen: tuple[Step, Symptom] | None = None
        self._warning: Finding | None = None

    @abstractmethod
    def look(self, step: Step) -> Symptom | None:
        """Return the symptom at a step selected by `looks_at`; None if there is none."""

    def looks_at(self, step: Step) -> bool:
        """Return whether to look at this step.

        By default, look if all required needs are met; if none is required, the first need.
        """
        wanted = [need for need in self.needs if need.required] or self.needs[:1]
        return all(need.due(step) and need.met(step) for need in wanted)

    def ripe(self, step: Step) -> bool:  # noqa: ARG002 (optional)
        """Return whether the rule may fire at a step at which the symptom is confirmed."""
        return True

    def certain(self, symptom: Symptom, outcome: Outcome) -> bool:  # noqa: ARG002 (optional)
        """Return whether to warn of a confirmed symptom before the outcome is known to be poor."""
        return False

    def verdict(self, *, ended: bool) -> Verdict:
        """Return the verdict on the training at the current step, or after its end."""
        return self.outcome.final() if ended else self.outcome.verdict()

    def watch(self, step: Step) -> Finding | None:
        """See `OnceRule.watch`."""
        if not self.looks_at(step):
            return None
        symptom = self.look(step)
        self._seen = None if symptom is None else (step, symptom)
        if self._patience.add(step.step, seen=symptom is not None):
            ripe = self.ripe(step)
            if self.gate == "none":
                return self._finding(Verdict("open")) if ripe else None
            verdict = self.verdict(ended=False)
            if ripe and verdict.kind == "poor" and not (self.waits and verdict.plateau):
                return self._finding(verdict)
        return self._early(symptom)

    def _early(self, symptom: Symptom | None) -> Finding | None:
        """Return the warning of a symptom that is certain to do harm, once."""
        looks = self._patience.looks
        enough = self._patience.over or (self.soon is not None and looks >= self.soon)
        if self.gate == "none" or symptom is None or self._warning is not None or not enough:
            return None
        if self.certain(symptom, self.outcome):
            self._warning = self._finding(self.verdict(ended=False), self.without_stop)
            return self._warning
        return None

    def at_end(self) -> Finding | None:
        """Return the symptom if it lasted to the end of a training with a poor outcome."""
        verdict = self.verdict(ended=True) if self._patience.over else None
        return self._finding(verdict) if verdict and verdict.kind == "poor" else None

    def suspicion(self) -> Finding | None:
        """See `Rule.suspicion`: the symptom, once it is confirmed."""
        confirmed = self._patience.over and not self._over
        return self._finding(Verdict("open")) if confirmed else None

    def confirmed(self) -> Finding | None:
        """See `Rule.confirmed`."""
        return self._once(self.suspicion())

    def _once(self, finding: Finding | None) -> Finding | None:
        # A warning does not keep the rule from stopping the run when its outcome turns out poor.
        early = finding is self._warning and self.severity == "stop"
        self._over |= finding is not None and not early
        return finding

    def _finding(self, verdict: Verdict, severity: Severity | None = None) -> Finding:
        assert self._seen is not None, "the symptom was seen"
        step, symptom = self._seen
        told = symptom.told(verdict.reason, looks=self._patience.looks)
        return self.found(step, since=self._patience.since, severity=severity, **told)
