"""The finding of a rule."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from vinedresser.plain_text import visible
from vinedresser.store.records import Record

__all__ = ["CAUGHT_UP", "HOPELESS", "MISSED", "Finding", "Severity"]

Severity = Literal["info", "warning", "stop"]

MISSED = "missed"
"""Key of the evidence of a finding about classes that are not learned: each class by its number, as
text, with the share of its rows that are mispredicted."""
CAUGHT_UP = "caught_up"
"""The same for a finding that such classes are learned by now."""
HOPELESS = "hopeless"
"""Key of the evidence of a finding: whether nothing can be learned with its fault."""


@dataclass(frozen=True)
class Finding(Record):
    """One finding of one rule, with everything needed to act on it.

    Attributes:
        rule: name of the rule, in snake case.
        severity: "info", "warning" or "stop" (end the run).
        step: step at which the rule fired.
        since: first step with the symptom.
        mode: "train", "eval" or "predict".
        rank: rank of the process whose data shows it.
        tensor: name of the tensor that shows it most clearly.
        statistic: the statistic of that tensor, such as "abs_mean" or "loss"; "" if the finding is
            about the rule and not about the training (`is_about_rule`).
        value: value of the statistic.
        threshold: the limit that the value was compared with.
        confidence: from 0 to 1.
        seen: the observation, one sentence with numbers and names.
        cause: the likely cause.
        remedy: the concrete change to try.
        evidence: supporting numbers, as plain JSON types.
        fault: kind of fault, such as "learning_rate_too_high"; "" if unspecified.
        correction: the remedy as new values of hyperparameters of the run, such as {"lr": 0.01};
            {} if there is none.
    """

    KEY: ClassVar[str] = "findings"

    rule: str
    severity: Severity
    step: int
    since: int
    mode: str
    rank: int
    tensor: str
    statistic: str
    value: float
    threshold: float
    confidence: float
    seen: str
    cause: str
    remedy: str
    evidence: dict[str, Any] = field(default_factory=dict)
    fault: str = ""
    correction: dict[str, Any] = field(default_factory=dict)

    @property
    def is_about_rule(self) -> bool:
        """Whether it tells why the rule could not judge, instead of judging the training."""
        return not self.statistic

    def __repr__(self) -> str:
        seen = visible(self.seen)
        return f"Finding({self.rule}, {self.severity} at step {self.step}: {seen})"
