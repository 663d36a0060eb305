"""Rule: a named term of the loss does not train the model."""

from __future__ import annotations

import math
from dataclasses import dataclass

from vinedresser.rules.applicability import NO_TERMS, Reasons
from vinedresser.rules.base import OnceRule
from vinedresser.rules.bounds import require_between
from vinedresser.rules.need import Need
from vinedresser.store.collections.collection import TERM_GRADIENT, TERMS
from vinedresser.store.finding import Finding, Severity
from vinedresser.store.reading.step import Step

# Checks in a row of a term without a gradient, and the steps of a term that never moves.
_CHECKS, _STEPS = 3, 100


@dataclass
class _Term:
    """What was seen of one term.

    Attributes:
        first: its first value.
        moves: whether any other value was different.
        most: greatest share of the sum of the sizes of all terms.
        idle: checks in a row without a gradient.
        steps: number of values.
    """

    first: float
    moves: bool = False
    most: float = 0.0
    idle: int = 0
    steps: int = 0


class IdleTerm(OnceRule):
    """A term of the loss that the script names (`Hook.terms`) does not train the model.

    Fires at the third check in a row, every 20 steps, at which a term has no gradient while another
    one has (PyTorch), and at the end of a run of 100 steps for a term that had the same value in
    all of them, to the bit, while another one varied; if that is 0, its weight may be, and it is a
    hint. Hints as well at a term that was never more than ``share`` of the sum of all their sizes.

    Args:
        share: share of the loss below which a term hardly counts.
    """

    severity = "warning"
    fault = "idle_term"
    stage = "loss"
    consequences = ("outcome",)
    position = 162
    inapplicable = Reasons(xgboost=NO_TERMS, sklearn=NO_TERMS)
    needs = (Need("saved", required=False), Need("state", every=20, required=False))

    def __init__(self, share: float = 1e-4) -> None:
        require_between(0, 1, share=share)
        self.share = share
        self._terms: dict[str, _Term] = {}
        self._last: Step | None = None

    def watch(self, step: Step) -> Finding | None:
        """See `OnceRule.watch`."""
        self._last = step
        values = _named(step, TERMS)
        total = math.fsum(map(abs, values.values()))
        for name, value in values.items():
            term = self._terms.setdefault(name, _Term(value))
            term.moves |= value != term.first
            term.most = max(term.most, abs(value) / total if total else 0.0)
            term.steps += 1
        gradients = _named(step, TERM_GRADIENT)
        # If none has a gradient, they may have been detached to be reported.
        for name, reaches in gradients.items() if any(gradients.values()) else ():
            term = self._terms.setdefault(name, _Term(math.nan))
            term.idle = 0 if reaches else term.idle + 1
            if term.idle == _CHECKS:
                return self._finding(
                    name,
                    f"the term {name} of the loss has no gradient, unlike others",
                    "it is detached from the model (detach, item, no_grad, numpy): it changes the "
                    "value of the loss, and trains nothing",
                    "compute the term from the outputs of the model without detaching them, and "
                    "pass hook.terms what is added to the loss",
                )
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


def _named(step: Step, prefix: str) -> dict[str, float]:
    """Return scalars whose names begin with a prefix, by the rest of their names."""
    return {
        name.removeprefix(prefix): value
        for name, value in step.scalars.items()
        if name.startswith(prefix)
    }
