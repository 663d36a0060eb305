"""Rule: a named term of the loss does not train the model."""

from __future__ import annotations

from dataclasses import dataclass

from vinedresser.rules.applicability import NO_TERMS, Reasons
from vinedresser.rules.base import OnceRule
from vinedresser.rules.bounds import require_between
from vinedresser.rules.need import Need
from vinedresser.store.collections.collection import TERMS
from vinedresser.store.finding import Finding, Severity
from vinedresser.store.reading.step import Step

# Fewest steps of a term that is judged.
_STEPS = 100


@dataclass
class _Term:
    """What was seen of one term.

    Attributes:
        first: its first value.
        moves: whether any other value was different.
        most: greatest share of the sum of the sizes of all terms.
        steps: number of values.
    """

    first: float
    moves: bool = False
    most: float = 0.0
    steps: int = 0


class IdleTerm(OnceRule):
    """A term of the loss that the script names (`Hook.terms`) does not train the model.

    Fires at the end of a run for a term that had the same value in 100 steps or more, to the bit,
    while another one varied; if that is 0, its weight may be, and it is a hint. Hints as well at a
    term that was never more than ``share`` of the sum of all their sizes. A term without a gradient
    may have been detached to be reported only, so that tells nothing.

    Args:
        share: share of the loss below which a term hardly counts.
    """

    severity = "warning"
    fault = "idle_term"
    stage = "loss"
    consequences = ("outcome",)
    position = 162
    inapplicable = Reasons(xgboost=NO_TERMS, sklearn=NO_TERMS)
    needs = (Need("saved", required=False),)

    def __init__(self, share: float = 1e-4) -> None:
        require_between(0, 1, share=share)
        self.share = share
        self._terms: dict[str, _Term] = {}
        self._last: Step | None = None

    def watch(self, step: Step) -> Finding | None:
        """See `OnceRule.watch`."""
        self._last = step
        values = {
            name.removeprefix(TERMS): value
            for name, value in step.scalars.items()
            if name.startswith(TERMS)
        }
        total = sum(map(abs, values.values()))
        for name, value in values.items():
            term = self._terms.setdefault(name, _Term(value))
            term.moves |= value != term.first
            term.most = max(term.most, abs(value) / total if total else 0.0)
            term.steps += 1
        return None

    def at_end(self) -> Finding | None:
        """See `OnceRule.at_end`."""
        long = {name: one for name, one in self._terms.items() if one.steps >= _STEPS}
        if not any(one.moves for one in long.values()):
            return None
        for name, term in long.items():
            if not term.moves:
                return self._finding(
                    name,
                    f"the term {name} of the loss was {term.first:.4g} in all {term.steps} steps",
                    "it does not depend on what is trained: it is clamped, or its weight is 0",
                    "print the term before it is clamped and weighted",
                    None if term.first else "info",
                )
        name, term = min(long.items(), key=lambda one: one[1].most)
        if term.most >= self.share:
            return None
        return self._finding(
            name,
            f"the term {name} of the loss was never more than {term.most:.1g} of it",
            "it hardly counts beside the other terms",
            "raise its weight, unless it is meant to be this small",
            "info",
        )

    def _finding(
        self, name: str, seen: str, cause: str, remedy: str, severity: Severity | None = None
    ) -> Finding:
        return self.found(
            self._last,
            since=0,
            tensor=f"{TERMS}{name}",
            statistic="share",
            value=self._terms[name].most,
            threshold=self.share,
            confidence=0.95,
            severity=severity,
            seen=seen,
            cause=cause,
            remedy=remedy,
            evidence={},
        )
