"""The base class of rules that report a breach which the hook has seen."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from vinedresser.rules.base import OnceRule
from vinedresser.store.finding import Finding, Severity
from vinedresser.store.reading.step import Step
from vinedresser.store.records import RunRecord

_SURE = 0.99


class Contract(OnceRule):
    """Reports what the hook has seen in the training process and no tensor shows.

    The hook notes it in the record under the name of the rule (``RunRecord.breaches``), with the
    step at which it was certain and, where that is known, the line of the script.

    Attributes:
        remedy: what to change.
    """

    severity: Severity = "warning"
    remedy: ClassVar[str]
    _breach: Mapping[str, Any] | None = None
    _last: Step | None = None

    @abstractmethod
    def describe(self, breach: Mapping[str, Any]) -> tuple[float, str, str]:
        """Return the number in a breach, what was seen, and the cause."""

    def on_record(self, info: RunRecord) -> None:
        """See `Rule.on_record`."""
        self._breach = info.breaches.get(self.name)

    def watch(self, step: Step) -> Finding | None:
        """See `OnceRule.watch`."""
        self._last = step
        breach = self._breach
        return None if breach is None or step.step < breach["step"] else self._found(step, breach)

    def at_end(self) -> Finding | None:
        """See `OnceRule.at_end`: what was seen after the last step."""
        if self._last is None or self._breach is None:
            return None
        return self._found(self._last, self._breach)

    def finish_early(self) -> Finding | None:
        """See `Rule.finish_early`: a breach is certain whatever comes after it."""
        return self.finish()

    def _found(self, step: Step, breach: Mapping[str, Any]) -> Finding:
        value, seen, cause = self.describe(breach)
        where = f" ({breach['where']})" if breach.get("where") else ""
        return self.found(
            step,
            since=min(breach["step"], step.step),
            tensor="",
            statistic=self.name,
            value=value,
            threshold=1.0,
            confidence=_SURE,
            seen=seen,
            cause=f"{cause}{where}",
            remedy=self.remedy,
            evidence=dict(breach),
        )
