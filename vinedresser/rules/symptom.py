"""Rules that look for a symptom at single steps: confirmed over several, and by the outcome."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from vinedresser.rules.base import Rule
from vinedresser.rules.faults import Fault
from vinedresser.rules.patience import Patience
from vinedresser.rules.signals.outcomes.outcome import Outcome, Verdict
from vinedresser.store.finding import Finding

if TYPE_CHECKING:
    from vinedresser.store.reading.step import Step

__all__ = ["Symptom", "SymptomRule"]


@dataclass(frozen=True)
class Symptom:
    """What a rule sees at one step; see `Finding` for the attributes."""

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


class SymptomRule(Rule):
    """Fires once, when it has seen its symptom at some looks in a row and the outcome agrees.

    A subclass says at which steps it looks (`looks_at`) and what it sees there (`look`). Only rank
    0 is looked at.

    Args:
        patience: looks in a row.

    Attributes:
        gate: "poor": it counts only in a training that does not learn as it should (`Outcome`),
            and in its last step also where it ended so; "none": in any.
        waits: a training whose loss may stand on a plateau before learning (`Verdict`) is given
            time; for symptoms that such a training may have.
        outcome: of the training.
    """

    gate: ClassVar[Literal["poor", "none"]] = "poor"
    waits: ClassVar[bool] = False

    def __init__(self, patience: int) -> None:
        self.patience = patience
        self.outcome = Outcome()
        self._patience = Patience(patience)
        self._seen: tuple[Step, Symptom] | None = None
        self._fired = False

    @abstractmethod
    def look(self, step: Step) -> Symptom | None:
        """Return what is wrong at a step at which it looks; None: nothing."""

    def looks_at(self, step: Step) -> bool:
        """Say whether this step shows anything.

        By default, when all that it requires is there; where it requires nothing, its first need.
        """
        wanted = [need for need in self.needs if need.required] or self.needs[:1]
        return all(need.due(step) and need.met(step) for need in wanted)

    def ripe(self, step: Step) -> bool:  # noqa: ARG002 (for those that want it)
        """Say whether it may fire at a step at which it has seen its symptom often enough."""
        return True

    def update(self, step: Step) -> Finding | None:
        """See `Rule.update`."""
        if self._fired or step.rank != 0 or not self.looks_at(step):
            return None
        symptom = self.look(step)
        self._seen = None if symptom is None else (step, symptom)
        enough = self._patience.add(step.step, seen=symptom is not None)
        if not enough or not self.ripe(step):
            return None
        if self.gate == "none":
            return self._fire(Verdict("open"))
        verdict = self.outcome.verdict()
        if verdict.kind != "poor" or (self.waits and verdict.plateau):
            return None
        return self._fire(verdict)

    def finish(self) -> Finding | None:
        """Return the symptom that was there until the end of a training that came to little."""
        if self._fired or not self._patience.over:
            return None
        verdict = self.outcome.final()
        return self._fire(verdict) if verdict.kind == "poor" else None

    def suspicion(self) -> Finding | None:
        """See `Rule.suspicion`: the symptom, once it is confirmed."""
        if self._fired or not self._patience.over:
            return None
        return self._finding(Verdict("open"))

    def _fire(self, verdict: Verdict) -> Finding:
        self._fired = True
        return self._finding(verdict)

    def _finding(self, verdict: Verdict) -> Finding:
        assert self._seen is not None, "it finds what it has seen"
        step, symptom = self._seen
        return self.found(
            step,
            since=self._patience.since,
            tensor=symptom.tensor,
            statistic=symptom.statistic,
            value=symptom.value,
            threshold=symptom.threshold,
            confidence=symptom.confidence,
            seen=f"{symptom.seen}; {verdict.reason}" if verdict.reason else symptom.seen,
            cause=symptom.cause,
            remedy=symptom.remedy,
            evidence={**symptom.evidence, "looks": self._patience.looks},
            fault=symptom.fault,
            correction=symptom.correction,
        )
