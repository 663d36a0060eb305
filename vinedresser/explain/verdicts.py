"""The verdict on a run: what is wrong with it, since when and what to do, the same everywhere."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any, Literal

from vinedresser.explain.formatting import count
from vinedresser.explain.proofs import proof_of
from vinedresser.objects import Storage
from vinedresser.rules.causes.root_cause import (
    RootCause,
    cause_of,
    onset,
    remedies,
    root_causes,
)
from vinedresser.rules.signals.outcomes.learning_outcome import LEAST_SHARE, MetricTrend, fallen
from vinedresser.rules.signals.outcomes.metric_scale import tells_learning
from vinedresser.store.finding import Finding
from vinedresser.store.liveness import read_record_or_none
from vinedresser.store.reading.notebook_html import paragraph, table
from vinedresser.store.reading.reader import Run
from vinedresser.store.reading.series import Column
from vinedresser.store.records import ChecksRecord, known_keys
from vinedresser.store.status import Status
from vinedresser.store.step_record import MODES

__all__ = ["Verdict", "VerdictKind", "checks_of", "steps_done", "verdict"]

VerdictKind = Literal["healthy", "problem", "stopped", "running", "cannot tell"]

_WHO = {
    "sweep": "by its sweep",
    "person": "on request",
    "owner": "by the end of its owner",
    "limit": "by its limit",
}
_BLIND = "no rule could judge how well it learns"
_WORDS = {"stop": "critical problem", "warning": "problem"}
# Most rules about networks check every 20 steps. Boosting and estimators may need a single step.
_FEW = 20
_FEWEST = {"torch": _FEW, "keras": _FEW}
# Number of steps from which rules judge a loss that does not fall (`LearningOutcome`).
_MANY = 200


@dataclass(frozen=True)
class Verdict:
    """The verdict on a run, which all pages, tables, tags and the terminal show.

    Attributes:
        status: its status; of a run that a rule stopped, with the root cause of what stopped it.
        findings: its findings, in the order of their steps.
        checks: which rules judged it, by group; only those whose record can be read.
        unjudged: what is known of rules that are not among these; "" if there are none.
        damaged: a sentence for each file of findings or checks that cannot be read.
        steps: number of optimizer steps done.
        total: number of optimizer steps of the whole run; None if unknown.
        fewest: number of steps from which the absence of findings says something.
        unlearned: why nothing shows that it learns, if it has too few steps for the rules that
            judge this; "" if something does, or they judge it.
        proof: what trials from a snapshot proved to cure it; "" if nothing.
    """

    status: Status
    findings: Sequence[Finding] = ()
    checks: Sequence[ChecksRecord] = ()
    unjudged: str = ""
    damaged: Sequence[str] = ()
    steps: int = 0
    total: int | None = None
    fewest: int = 1
    unlearned: str = ""
    proof: str = ""

    @cached_property
    def causes(self) -> list[RootCause]:
        """The root causes among its findings, the one that decides the verdict first.

        Findings about rules that could not judge come last.
        """
        roots = sorted(root_causes(self.findings), key=lambda cause: cause.finding.is_about_rule)
        decisive = next((root for root in roots if self.stopping in root.all), None)
        return (
            roots
            if decisive is None
            else [decisive, *(root for root in roots if root is not decisive)]
        )

    @cached_property
    def stopping(self) -> Finding | None:
        """The finding for which it was stopped; None if no rule stopped it.

        Of several findings of the rule, it is the first that is a root cause.
        """
        if not self.status.rule:
            return None
        found = (one for root in root_causes(self.findings) for one in root.all)
        return next((one for one in found if one.rule == self.status.rule), None)

    @cached_property
    def finding(self) -> Finding | None:
        """The finding that decides the verdict; None if there is none but "info".

        It is the one for which the run was stopped, or else the first root cause. Why a rule could
        not judge decides nothing.
        """
        if self.stopping is not None:
            return self.stopping
        found = (cause.finding for cause in self.causes if not cause.finding.is_about_rule)
        return next((one for one in found if one.severity != "info"), None)

    @property
    def since(self) -> int | None:
        """The first step with a sign of what decides the verdict; None if nothing does."""
        return None if self.finding is None else onset(self.finding, self.findings)

    @property
    def remedies(self) -> list[str]:
        """What to change for each of the causes; no two change the same thing."""
        return remedies(self.causes)

    @property
    def fix(self) -> str:
        """What to do about what decides the verdict; "" if nothing does."""
        return "" if self.finding is None else self.finding.remedy

    @property
    def saved(self) -> int | None:
        """Number of steps that stopping it saved; see `Status.steps_saved`."""
        return self.status.steps_saved(self.total)

    @cached_property
    def kind(self) -> VerdictKind:
        """What it comes to.

        "healthy": it finished, and rules that had something to look at found no problem;
        "problem": it did not end well, or a finding is more than "info"; "stopped": on purpose,
        by whomever; "running": it still trains, with no problem so far; "cannot tell": it
        finished, but was not judged, or not to its end, or not by all of its rules.
        """
        if self.status.state == "stopped":
            return "stopped"
        if self.finding is not None or self.status.state in ("crashed", "killed", "dead"):
            return "problem"
        if self.status.state == "running":
            return "cannot tell" if self.damaged else "running"
        return "cannot tell" if self.doubt else "healthy"

    @cached_property
    def doubt(self) -> str:
        """Why it cannot be told whether the training is healthy; "" if it can."""
        if self.status.state == "unreadable":
            return self.status.reason
        if self.damaged:
            return "what its rules found cannot be read"
        if not self.checks:
            return self.unjudged
        if self.is_idle or self._is_blind:
            what = "its rules had nothing to look at" if self.is_idle else _BLIND
            return f"{what}: {self._lacks}"
        if self.unjudged or not all(check.ended for check in self.checks):
            return "its rules have not judged it to its end"
        unable = (
            finding
            for finding in self.findings
            if finding.is_about_rule and finding.severity != "info"
        )
        seen = {one.rule: f"{one.rule} ({one.seen})" for one in unable}
        names = ", ".join(seen.values())
        return self._short or (f"these rules could not judge it: {names}" if names else "")

    @property
    def is_idle(self) -> bool:
        """Whether none of its rules had anything to look at, as far as these are known."""
        return bool(self.checks) and self._rules <= len(self._lacking)

    @property
    def _is_blind(self) -> bool:
        """Whether rules lack losses as well as labels or predictions, so that none judges results.

        "healthy" would say no more than that its gradients or trees look as they should.
        """
        lacks = {lack for lacks in self._lacking.values() for lack in lacks}
        return "losses" in lacks and not lacks.isdisjoint(("labels", "predictions"))

    @property
    def _short(self) -> str:
        """Why its steps are too few to tell; "" if they are not."""
        if not self.steps:
            return "no training step was captured"
        few = f"it has {count(self.steps, 'step')} only, and most rules wait for more"
        return few if self.steps < self.fewest else self.unlearned

    @property
    def checked(self) -> str:
        """What the absence of findings rests on, such as "43 rules; 5 …: no evaluations"."""
        if not self._rules:
            return ""
        unable = len(self._lacking)
        idle = f"; {unable} had nothing to look at: {self._lacks}" if unable else ""
        return f"{count(self._rules, 'rule')}, {count(self.steps, 'step')}{idle}"

    @property
    def advice(self) -> str:
        """How to provide what the rules lack; "" if they lack nothing."""
        return "; ".join(dict.fromkeys(check.advice for check in self.checks if check.advice))

    @property
    def tone(self) -> str:
        """Its colour in pages: "good", "stop", "warning", "bad", "info" or "muted"."""
        if self.status.state in ("crashed", "killed", "dead", "unreadable"):
            return "bad"
        if self.status.state == "stopped":
            return "stop"
        if self.finding is not None:
            return self.finding.severity
        return {"healthy": "good", "running": "info"}.get(self.kind, "muted")

    @property
    def headline(self) -> str:
        """How it ended and what is wrong, in a few words, such as "Stopped by overfitting"."""
        ending = self.ending
        if self.status.state == "stopped":
            return ending
        if self.finding is not None:
            return f"{ending} with a {_WORDS[self.finding.severity]}: {self.finding.rule}"
        if self.kind == "healthy":
            return "No problem found"
        if self.kind == "running" and self._rules:
            return f"{ending}, no problem reported so far"
        return "Cannot tell" if self.kind == "cannot tell" else ending

    @property
    def ending(self) -> str:
        """How it ended, whatever its rules found, such as "Stopped by overfitting"."""
        status = self.status
        if status.state == "stopped":
            who = f"by {status.rule}" if status.rule else _WHO.get(status.by, "")
            return f"Stopped {who}".rstrip()
        if status.state == "killed" and status.signal:
            return f"Killed by {status.signal}"
        if status.state == "crashed" and status.code is not None:
            return f"Crashed with exit code {status.code}"
        words = {"dead": "Died unexpectedly", "running": "Still running"}
        return words.get(status.state, status.state.capitalize())

    @property
    def sentence(self) -> str:
        """What is wrong, or why nothing is known to be, in a sentence without a full stop."""
        if self.finding is not None:
            return self.finding.seen
        if self.kind == "healthy":
            return self.checked
        if self.kind == "running" and self._rules:
            return f"{count(self.steps, 'step')} so far"
        if self.kind in ("cannot tell", "running"):
            reason = "" if self.status.state == "finished" else self.status.reason
            return "; ".join(filter(None, (reason, self.doubt)))
        return self.status.reason

    @property
    def words(self) -> str:
        """How it ended and what was found, such as "stopped by overfitting at step 120"."""
        return "; ".join(filter(None, (self.status.words, self.brief)))

    @property
    def brief(self) -> str:
        """What was found in a few words, such as "critical problem: dying_relu".

        Names the rules of all root causes that are more than "info", but for the one that stopped
        it; "" if there are none in a run that did not end well.
        """
        others = (cause.finding for cause in self.causes if cause.finding is not self.stopping)
        causes = [other for other in others if not other.is_about_rule]
        rules = {
            severity: list(
                dict.fromkeys(cause.rule for cause in causes if cause.severity == severity)
            )
            for severity in _WORDS
        }
        found = [
            f"{_WORDS[severity]}{'' if len(names) == 1 else 's'}: {', '.join(names)}"
            for severity, names in rules.items()
            if names
        ]
        if found or self.status.state not in ("finished", "running"):
            return "; ".join(found)
        if self.kind == "cannot tell":
            return f"cannot tell: {self.doubt}"
        if not self._rules:
            return self.doubt
        return f"no problem {'found' if self.status.over else 'reported so far'}"

    def to_json(self) -> dict[str, Any]:
        """Return the verdict as JSON types.

        The keys are verdict (`kind`), state, headline, sentence; rule, tensor, since, cause, fix,
        tried and confidence of what decides it, or None; symptoms and others, rules with what
        they saw; rules, lacking and advice; steps, total and saved.
        """
        finding = self.finding
        rest = self.causes if finding is None else self.causes[1:]
        own = self.causes[0].all if finding is not None else ()
        return {
            "verdict": self.kind,
            "state": self.status.state,
            "headline": self.headline,
            "sentence": self.sentence,
            "rule": finding.rule if finding else None,
            "tensor": finding.tensor or None if finding else None,
            "since": self.since,
            "cause": finding.cause or None if finding else None,
            "fix": self.fix or None,
            "tried": self.proof or None,
            "confidence": finding.confidence if finding else None,
            "symptoms": _briefly(one for one in own if one is not finding),
            "others": _briefly(one.finding for one in rest),
            "rules": self._rules,
            "lacking": self._lacking,
            "advice": self.advice or None,
            "steps": self.steps,
            "total": self.total,
            "saved": self.saved,
        }

    def _repr_html_(self) -> str:
        """Return it for a notebook: the headline, the sentence, and what to do."""
        title = paragraph(f"{self.headline}: {self.sentence}" if self.sentence else self.headline)
        if self.finding is None:
            return title
        rows = {"since step": self.since, "likely cause": self.finding.cause, "try": self.fix}
        if self.proof:
            rows["tried"] = self.proof
        return title + table([*rows], [[*rows.values()]])

    @property
    def _rules(self) -> int:
        """Number of rules that judge it."""
        return sum(len(check.rules) for check in self.checks)

    @cached_property
    def _lacking(self) -> dict[str, list[str]]:
        return {rule: lacks for check in self.checks for rule, lacks in check.lacking.items()}

    @property
    def _lacks(self) -> str:
        return ChecksRecord([], self._lacking).lacks


def verdict(run: Run, faults: list[str] | None = None) -> Verdict:
    """Return the verdict on a run, as of its last refresh.

    Args:
        faults: receives a sentence for each damaged record.

    Raises:
        NotARun: it was removed.
        StoreError: the storage refused.
    """
    damaged: list[str] = []
    findings = run.findings(damaged)
    status = _attributed(run.status, findings)
    checks = checks_of(run.storage, damaged)
    others: list[str] = []
    proof = proof_of(run.storage, others)
    if faults is not None:
        faults += [*damaged, *others]
    steps = steps_done(run, status)
    return Verdict(
        status=status,
        findings=findings,
        checks=[*checks.values()],
        unjudged=_unjudged(run.storage, checks),
        damaged=damaged,
        steps=steps,
        total=run.info.total_steps,
        fewest=_FEWEST.get(run.info.framework, 1),
        unlearned=_unlearned(run, steps) if status.state == "finished" else "",
        proof=proof,
    )


def steps_done(run: Run, status: Status) -> int:
    """Return the number of optimizer steps that a run has done, as far as is recorded."""
    captured = [steps[-1] for rank in run.ranks if len(steps := run.steps("train", rank))]
    last = [] if status.step is None else [status.step]
    return int(max([*captured, *last], default=-1)) + 1


def _unlearned(run: Run, steps: int) -> str:
    """Return why nothing shows that a short run learns; see `Verdict.unlearned`."""
    if not _FEW <= steps < _MANY:
        return ""
    losses = {
        name: zip(one.steps.tolist(), one.values.tolist(), strict=True)
        for name, one in run.scalars("losses", mode="train").items()
        if not run.info.may_rise(name)
    }
    learns, seen = fallen(losses)
    if learns or not seen or any(map(_improves, run.scalars("metrics").values())):
        return ""
    return (
        f"no loss has certainly fallen by {LEAST_SHARE:.0%} in its {count(steps, 'step')} "
        f"({seen}), and rules that judge what is learned wait for more"
    )


def _improves(metric: Column) -> bool:
    """Return whether a metric improves in the training or in evaluations."""
    trends = [MetricTrend(metric.name) for _ in MODES]
    for mode, value in zip(metric.modes.tolist(), metric.values.tolist(), strict=True):
        trends[mode].add(value)
    return tells_learning(metric.name) and any(trend.improving() for trend in trends)


def checks_of(storage: Storage, faults: list[str]) -> dict[str, ChecksRecord]:
    """Return which rules judge a run, by group; damaged records are left out.

    Args:
        faults: receives a sentence for each damaged record.

    Raises:
        StoreError: the storage refused.
    """
    found = {}
    for key in known_keys(storage, ChecksRecord.KEY, faults):
        record = read_record_or_none(storage, ChecksRecord, key, faults)
        if record is not None:
            found[PurePosixPath(key).stem] = record
    return found


def _unjudged(storage: Storage, checks: Collection[str]) -> str:
    """Return what is known of rules that left no record of their checks; "" if there are none.

    Args:
        checks: the groups of rules that left one.
    """
    if any(group not in checks for group in _groups(storage, "rules", ".json")):
        return "nothing says that its rules have judged it"
    if checks:
        return ""
    # The hook's own groups are no rules.
    groups = _groups(storage, "findings", ".jsonl")
    found = any(not one.startswith("trainer-") for one in groups)
    return "by which rules it was judged is not recorded" if found else "no rule has judged it"


def _groups(storage: Storage, folder: str, suffix: str) -> list[str]:
    keys = known_keys(storage, folder, [])
    return [PurePosixPath(key).stem for key in keys if key.endswith(suffix)]


def _attributed(status: Status, findings: Sequence[Finding]) -> Status:
    """Return the status of a run, stopped for the root cause of what stopped it.

    The cause may have been found only after the stop was requested, such as at the end.
    """
    stopping = Verdict(status, findings).stopping if status.by == "rule" else None
    cause = cause_of(stopping, findings) if stopping is not None else None
    if cause is None or cause.rule == status.rule:
        return status
    return replace(status, rule=cause.rule, reason=cause.seen)


def _briefly(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    return [
        {
            "rule": finding.rule,
            "severity": finding.severity,
            "step": finding.step,
            "seen": finding.seen,
        }
        for finding in findings
    ]
