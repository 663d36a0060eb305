"""What a rule says when it fires."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from vinedresser.store.records import Record

__all__ = ["Finding", "Severity"]

Severity = Literal["info", "warning", "stop"]


@dataclass(frozen=True)
class Finding(Record):
    """One finding of one rule, with all that a person needs to act on it.

    Attributes:
        rule: the rule's name in snake case.
        severity: "info", "warning" or "stop" (end the run).
        step: the step at which the rule became sure.
        since: the first step at which the symptom was seen.
        mode: "train", "eval" or "predict".
        rank: the process whose data it saw.
        tensor: name of the tensor that shows it most clearly.
        statistic: which figure of it, such as "abs_mean" or "loss".
        value: that figure.
        threshold: what it was held against.
        confidence: how sure, from 0 to 1.
        seen: what was seen, one sentence with the numbers and the names.
        cause: the likely cause.
        remedy: the concrete change to try.
        evidence: the figures behind it, as plain JSON types.
        fault: the kind of fault that it is a sign of, a word such as "learning_rate_too_high"; ""
            where the rule does not say.
        correction: the remedy as settings of the training, where there are such: by the name of a
            hyperparameter of the run its new value, such as {"lr": 0.01}.
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
