"""The captured run of a trial, and what the rules find in it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from vinedresser.objects import LocalStorage
from vinedresser.preflight.names import RULE_CHECK
from vinedresser.preflight.verdict import FINE, SUSPICIOUS, UNCHECKED, Verdict
from vinedresser.rules.base import capture_for
from vinedresser.rules.causes.root_cause import root_causes
from vinedresser.rules.engine import Engine
from vinedresser.rules.judge import judge
from vinedresser.rules.registry import rules_from_table
from vinedresser.rules.signals.outcomes.learning_outcome import fallen
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import open_run
from vinedresser.store.reading.step import Step
from vinedresser.store.records import ExitRecord, RunRecord, write_record


class TrialRun:
    """The run of the first steps of a training, which is judged when they are over.

    Args:
        directory: its directory, which is made.
        record: record of the run of which these are the first steps.
        rules: settings of the rules that judge it, by name.
        skip: names of rules that are left out.

    Raises:
        ConfigError: an unknown rule, or an invalid setting of a rule.
        StoreError: the directory cannot be written.
    """

    def __init__(
        self,
        directory: Path,
        record: RunRecord,
        rules: Mapping[str, Mapping[str, Any]],
        skip: Collection[str],
    ) -> None:
        self.directory = directory
        self._storage = LocalStorage(directory)
        self._rules = rules_from_table({rule: rules[rule] for rule in rules if rule not in skip})
        self._skipped = RULE_CHECK in skip
        # A few steps may be captured whatever that costs, but only what is judged; nothing is kept.
        trial = replace(
            record,
            id=uuid.uuid4().hex,
            capture={},
            capture_digest="",
            needs={} if self._skipped else capture_for(self._rules).to_json(),
            capture_budget=1.0,
            guard="",
            snapshots={},
            live={},
        )
        write_record(self._storage, trial, exclusive=True)

    def verdicts(self, code: int | None, *, cut: bool) -> list[Verdict]:
        """Judge the trial; return a verdict for each root cause, and one for all other rules.

        That is only fine if a loss has fallen.

        Args:
            code: exit code of the script; None if it was ended.
            cut: whether the check ended the script. Then its outcome is not known, as that of a run
                that is killed.

        Raises:
            StoreError: the directory cannot be read or written.
        """
        if self._skipped:
            return []
        write_record(self._storage, _end(code, cut=cut))
        steps = set[int]()
        losses: dict[str, list[tuple[int, float]]] = {}

        def count(step: Step, _: Engine) -> None:
            if step.mode == "train" and step.rank == 0:
                steps.add(step.step)
                for name, value in step.scalars_of("losses").items():
                    losses.setdefault(name, []).append((step.step, value))

        findings = judge(open_run(self.directory), self._rules, on_step=count)
        # As `vinedresser run` shows them; what is of severity "info" may be intended.
        found = [
            cause.finding for cause in root_causes(findings) if cause.finding.severity != "info"
        ]
        judged = [_verdict(one) for one in found]
        if not steps:
            return [*judged, Verdict(RULE_CHECK, UNCHECKED, "no step was captured")]
        others = len(self._rules) - len({one.rule for one in found})
        finding = "other finding" if found else "finding"
        # Rules that judge what is learned wait for more: that they find nothing says nothing yet.
        learns, seen = fallen(losses)
        if not learns:
            seen = f"too few to tell whether it learns: {seen or 'no loss is known'}"
        said = f"no {finding} of {others} rules in {len(steps)} steps, "
        said += f"in which {seen}; some wait for more" if learns else seen
        return [*judged, Verdict(RULE_CHECK, FINE if learns else UNCHECKED, said)]


def _verdict(finding: Finding) -> Verdict:
    state = UNCHECKED if finding.is_about_rule else SUSPICIOUS
    return Verdict(finding.rule, state, f"{finding.seen}: {finding.cause}; {finding.remedy}")


def _end(code: int | None, *, cut: bool) -> ExitRecord:
    """Return how a trial ended."""
    if cut or code is None:
        return ExitRecord("killed", "the trial is over", time.time())
    return ExitRecord("crashed" if code else "finished", f"exit code {code}", time.time(), code)
