"""Run one rule: shield its calls, and check that its needs are met."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import replace
from difflib import get_close_matches
from functools import partial

from vinedresser.errors import CorruptData
from vinedresser.rules.base import Rule
from vinedresser.rules.causes.reliability import calibrated
from vinedresser.rules.need import Need
from vinedresser.rules.shield import shielded
from vinedresser.rules.signals.base import SignalPool, signals_of
from vinedresser.store.finding import Finding
from vinedresser.store.reading.step import Step
from vinedresser.store.records import RunRecord

__all__ = ["RuleRunner", "worded"]

# Start of the names of modules with built-in rules, whose findings were measured.
_BUILT_IN = "vinedresser.rules."
# What Python writes for numbers of few digits, such as 1.8e+21, 5.2e+00 and 1.35e+05.
_SCIENTIFIC = re.compile(r"(?<![\w.])(-?\d+(?:\.\d+)?)e([+-]\d{2,3})(?![\w.]*\w)")
# A script has no such names in front of its losses and parameters.
_COLLECTIONS = re.compile(
    r"(?<![\w/.])(?:losses|metrics|saved/terms|gradients|weights|biases|buffers|optimizer_state)/(?=\S)"
)
_SIDES = re.compile(r"(?<![\w/.])(inputs|outputs)/(?=\S)")
# Decimal exponents of numbers that are written in full.
_LEAST, _MOST = -4, 5


class RuleRunner:
    """Runs a rule over a run.

    An exception of the rule becomes a finding of severity "warning" and disables the rule. Corrupt
    data are reported once, and the rule continues with the other steps.

    Args:
        rule: new rule, with the signals of the pool.
        pool: signals, updated at each step before the rule.

    Attributes:
        lacks: data that the rule needs and that the run does not have, such as "gradients" or
            "abs_mean of gradients"; if there are any, the rule has nothing to look at.
    """

    def __init__(self, rule: Rule, pool: SignalPool) -> None:
        self.rule = rule
        self._pool = pool
        self._signals = signals_of(rule)
        self._unmet = [need for need in rule.all_needs if need.required]
        self.lacks: list[str] = []
        # What was missing when an unmet need was first due; the run may have it later.
        self._missing: dict[Need, str] = {}
        self._modes: set[str] = set()
        self._found: list[Finding] = []
        self._last: Step | None = None
        self._failed = False
        self._damaged = False
        self._built_in = type(rule).__module__.startswith(_BUILT_IN)

    def begin(self, info: RunRecord) -> None:
        """See `Rule.begin`."""
        self.rule.expected_steps = info.total_steps
        self._shielded(lambda: self.rule.begin(info))
        self.on_record(info)

    def on_record(self, info: RunRecord) -> None:
        """See `Rule.on_record`."""
        self._shielded(lambda: self.rule.on_record(info))

    def update(self, step: Step) -> list[Finding]:
        """Process a step; return the findings."""
        self._last = step
        self._modes.add(step.mode)
        if self._unmet:
            self._shielded(lambda: self._check_needs(step))
        self._shielded(lambda: self._update(step))
        return self._taken()

    def before_first(self, since: float, until: float) -> list[Finding]:
        """Report that there was no first step up to a time; return the findings."""
        self._shielded(lambda: self.rule.before_first(since, until))
        return self._taken()

    def idle(self, until: float) -> list[Finding]:
        """Report that there was no step up to a time; return the findings."""
        self._shielded(lambda: self.rule.idle(until))
        return self._taken()

    def finish(self, *, early: bool = False) -> list[Finding]:
        """Report the end of the run; return the findings.

        Args:
            early: others ended the run (`Rule.finish_early`).
        """
        for need in self._unmet:
            self._shielded(partial(self._was_not_met, need))
        self._unmet = []
        self._shielded(self.rule.finish_early if early else self.rule.finish)
        return self._taken()

    def suspicion(self) -> Finding | None:
        """See `Rule.suspicion`."""
        self._shielded(self.rule.suspicion)
        # A failure is reported with the findings of the next step.
        return None if self._failed else next(iter(self._taken()), None)

    def confirmed(self) -> list[Finding]:
        """See `Rule.confirmed`."""
        self._shielded(self.rule.confirmed)
        return [] if self._failed else self._taken()

    def _update(self, step: Step) -> Finding | None:
        self._pool.check(self._signals)
        return self.rule.update(step)

    def _taken(self) -> list[Finding]:
        found, self._found = self._found, []
        return found

    def _shielded(self, call: Callable[[], Finding | None]) -> None:
        """Call the rule; its exceptions do not stop other rules."""
        if self._failed:
            return
        finding = shielded(call, self._problem)
        if finding is not None:
            self._found.append(worded(calibrated(finding)) if self._built_in else finding)

    def _problem(self, error: Exception) -> Finding | None:
        """Return the finding about an exception that the rule raised; None if it was reported."""
        if not isinstance(error, CorruptData):
            self._failed = True
            return self._failure(error)
        if self._damaged:
            return None
        self._damaged = True
        return self._unreadable(error)

    def _check_needs(self, step: Step) -> None:
        """Check which needs are met, and which were due in a train step and are not."""
        for need in list(self._unmet):
            if not need.due(step):
                continue
            if need.met(step):
                self._unmet.remove(need)
            elif step.mode == "train" and self._is_named(need):
                self._unmet.remove(need)
                self._found.append(self._missed(need, step))
            elif step.mode == "train" and need not in self._missing:
                self._missing[need] = self._lack(need, step)

    def _lack(self, need: Need, step: Step | None) -> str:
        """Return which data a run lacks for a need that is not met.

        Args:
            step: step at which it was due; None if there was no step.
        """
        if step is not None and "train" not in self._modes:
            # Rules judge trainings; this run only evaluates, as the first one of a pruning does.
            return "train steps"
        known = (*step.scalars, *step.tensor_names, *step.reductions) if step else ()
        if need.modes == ("eval",):
            return f"{need.collection} in evaluations" if "eval" in self._modes else "evaluations"
        there = any(name.startswith(f"{need.collection}/") for name in known)
        # Statistics that were not asked for, as of a run that was captured for other rules.
        words = " and ".join(need.reductions) if there else ""
        return f"{words} of {need.collection}" if words else need.collection

    def _warning(self, step: Step | None, *, seen: str, cause: str, remedy: str) -> Finding:
        """Return a warning about the rule, not about the training."""
        return Finding(
            rule=self.rule.name,
            severity="warning",
            step=step.step if step else 0,
            since=step.step if step else 0,
            mode=step.mode if step else "train",
            rank=step.rank if step else 0,
            tensor="",
            statistic="",
            value=0.0,
            threshold=0.0,
            confidence=1.0,
            seen=seen,
            cause=cause,
            remedy=remedy,
        )

    def _is_named(self, need: Need) -> bool:
        """Return whether the user has named the data of a need."""
        return need.regex is not None or need.collection in _named_by_user(self.rule)

    def _was_not_met(self, need: Need) -> Finding | None:
        """Handle a need that the whole run has not met."""
        if self._is_named(need):
            return self._missed(need, self._last)
        lack = self._missing.get(need) or self._lack(need, self._last)
        if lack not in self.lacks:
            self.lacks.append(lack)
        return None

    def _missed(self, need: Need, step: Step | None) -> Finding:
        """Return the finding about a need of data that the user has named."""
        wanted = need.collection if need.regex is None else f"{need.collection} ({need.regex!r})"
        if need.reductions:
            wanted = f"{' and '.join(need.reductions)} of {wanted}"
        if "train" in need.modes and step:
            place = f"at {step.mode} step {step.step}"
        else:
            place = f"in mode {' or '.join(need.modes)} of the whole run"
        names = [*step.scalars, *step.tensor_names, *step.reductions] if step else []
        near = get_close_matches(need.regex or need.collection, names, n=5, cutoff=0.0)
        return self._warning(
            step,
            seen=f"there is no {wanted} {place}"
            + (f"; nearest names: {', '.join(near)}" if near else ""),
            cause="it was not captured, so this rule cannot find anything",
            remedy=f"name data that exist, or capture them: [capture.{need.collection}]",
        )

    def _unreadable(self, error: CorruptData) -> Finding:
        return self._warning(
            self._last,
            seen=f"captured data could not be read: {error}",
            cause="data in the store changed after they were written",
            remedy="the rule continues with the other steps; check the disk",
        )

    def _failure(self, error: Exception) -> Finding:
        return self._warning(
            self._last,
            seen=f"the rule itself failed: {type(error).__name__}: {error}",
            cause="a bug in the rule, not in the training",
            remedy="the rule is disabled for this run; the others continue",
        )


def _named_by_user(rule: Rule) -> set[str]:
    """Return the string parameters of a rule that differ from their defaults."""
    defaults = inspect.signature(type(rule)).parameters
    return {
        value
        for name, value in rule.params.items()
        if isinstance(value, str) and value != defaults[name].default
    }


def worded(finding: Finding) -> Finding:
    """Return a finding whose sentences have 0.0002 for 2e-04, 5.2 for 5.2e+00, and so on.

    Powers of ten stay above a million and below a ten-thousandth (1.8e21); names of losses,
    metrics, parameters, buffers and settings of optimizers lose their collections, and
    ``outputs/1`` is "outputs of 1".
    """
    seen, cause, remedy = map(_plain, (finding.seen, finding.cause, finding.remedy))
    return replace(finding, seen=seen, cause=cause, remedy=remedy)


def _plain(text: str) -> str:
    named = _SIDES.sub(r"\1 of ", _COLLECTIONS.sub("", text))
    return _SCIENTIFIC.sub(_number, named)


def _number(match: re.Match[str]) -> str:
    mantissa, power = match[1], int(match[2])
    if _LEAST <= power <= _MOST:
        return f"{float(match[0]):,.15g}"
    return f"{mantissa}e{power}"
