"""Rules that confirm a symptom over several steps and by the outcome."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar

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

    def reported(self, reason: str, **evidence: Any) -> dict[str, Any]:
        """Return the symptom as arguments of `Rule.found`.

        Args:
            reason: reason for a poor outcome; "" if it is not poor or unknown.
            evidence: further evidence.
        """
        seen = f"{self.seen}; {reason}" if reason else self.seen
        return {**vars(self), "seen": seen, "evidence": {**self.evidence, **evidence}}


class SymptomRule(OnceRule):
    """Fires once, when the symptom was present at several checks in a row and the outcome is poor.

    A subclass selects the steps to check (`is_checked`) and detects the symptom (`detect`). Of one
    that is certain to do harm, the rule `warns_early`, before the outcome is known.

    Args:
        patience: checks in a row.

    Attributes:
        early_patience: checks in a row after which the rule `warns_early`, if fewer than
            ``patience``.
        awaits_plateau: give a training time whose loss may be on a plateau before learning
            (`Verdict`); for symptoms that occur on such a plateau (`may_recover`).
        outcome: outcome of the training.

    Raises:
        ConfigError: ``patience`` is below 1.
    """

    awaits_plateau: ClassVar[bool] = False
    early_patience: ClassVar[int | None] = None

    def __init__(self, patience: int) -> None:
        self.patience = patience
        self.outcome = Outcome()
        self._patience = Patience(patience)
        self._seen: tuple[Step, Symptom] | None = None
        self._warning: Finding | None = None

    @abstractmethod
    def detect(self, step: Step) -> Symptom | None:
        """Return the symptom at a step selected by `is_checked`; None if there is none."""

    def is_checked(self, step: Step) -> bool:
        """Return whether to check this step.

        By default, check it if all required needs are met; if none is required, the first need.
        """
        wanted = [need for need in self.needs if need.required] or self.needs[:1]
        return all(need.due(step) and need.met(step) for need in wanted)

    def is_conclusive(self, step: Step) -> bool:  # noqa: ARG002 (optional)
        """Return whether the rule may fire at a step at which the symptom is confirmed."""
        return True

    def may_recover(self, symptom: Symptom) -> bool:  # noqa: ARG002 (optional)
        """Return whether a training with the symptom may leave a plateau by itself."""
        return self.awaits_plateau

    def warns_early(self, symptom: Symptom, outcome: Outcome) -> bool:  # noqa: ARG002 (optional)
        """Return whether to warn of a confirmed symptom before the outcome is known to be poor."""
        return False

    def verdict(self, *, ended: bool) -> Verdict:
        """Return the verdict on the training at the current step, or after its end."""
        return self.outcome.final() if ended else self.outcome.verdict()

    def watch(self, step: Step) -> Finding | None:
        """See `OnceRule.watch`."""
        if not self.is_checked(step):
            return None
        symptom = self.detect(step)
        self._seen = None if symptom is None else (step, symptom)
        if self._patience.add(step.step, seen=symptom is not None):
            verdict = self.verdict(ended=False)
            waits = verdict.plateau and symptom is not None and self.may_recover(symptom)
            if self.is_conclusive(step) and verdict.kind == "poor" and not waits:
                return self._finding(verdict)
        return self._early(symptom)

    def _early(self, symptom: Symptom | None) -> Finding | None:
        """Return the warning of a symptom that is certain to do harm, once."""
        early = self.early_patience is not None and self._patience.count >= self.early_patience
        enough = self._patience.exhausted or early
        if symptom is None or self._warning is not None or not enough:
            return None
        if self.warns_early(symptom, self.outcome):
            self._warning = self._finding(self.verdict(ended=False), self.without_stop)
            return self._warning
        return None

    def at_end(self) -> Finding | None:
        """Return the symptom if it lasted to the end of a training with a poor outcome."""
        verdict = self.verdict(ended=True) if self._patience.exhausted else None
        return self._finding(verdict) if verdict and verdict.kind == "poor" else None

    def suspicion(self) -> Finding | None:
        """See `Rule.suspicion`: the symptom, once it is confirmed."""
        confirmed = self._patience.exhausted and not self._done
        return self._finding(Verdict("open")) if confirmed else None

    def confirmed(self) -> Finding | None:
        """See `Rule.confirmed`."""
        return self._once(self.suspicion())

    def _once(self, finding: Finding | None) -> Finding | None:
        # A warning does not keep the rule from stopping the run when its outcome turns out poor.
        early = finding is self._warning and self.severity == "stop"
        self._done |= finding is not None and not early
        return finding

    def _finding(self, verdict: Verdict, severity: Severity | None = None) -> Finding:
        assert self._seen is not None, "the symptom was seen"
        step, symptom = self._seen
        arguments = symptom.reported(verdict.reason, looks=self._patience.count)
        return self.found(step, since=self._patience.since, severity=severity, **arguments)
