"""Check rules on recorded runs: their findings, and whether they behave as rules must."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vinedresser.errors import ConfigError
from vinedresser.rules.custom_rules import references_in
from vinedresser.rules.engine import Engine
from vinedresser.rules.judge import judge
from vinedresser.rules.registry import rules_from_table
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import open_run
from vinedresser.store.reading.step import Step
from vinedresser.store.records import ChecksRecord

__all__ = ["RuleCheck", "try_rules"]


@dataclass(frozen=True)
class RuleCheck:
    """Results of some rules on one run.

    Attributes:
        run: location of the run.
        checks: the rules, and what the run lacks for them.
        findings: findings in the order in which they were made.
        steps: number of steps of all modes and ranks.
        seconds: time that judging took, including reading.
        same: a second pass gave the same findings.
        failed: names of the rules that raised an exception.
    """

    run: str
    checks: ChecksRecord
    findings: tuple[Finding, ...]
    steps: int
    seconds: float
    same: bool
    failed: tuple[str, ...]

    @property
    def sound(self) -> bool:
        """Whether the rules behaved as they must."""
        return self.same and not self.failed


def try_rules(table: Mapping[str, Mapping[str, Any]], run: str) -> RuleCheck:
    """Apply rules to a recorded run, twice.

    Args:
        table: rules as in `rules_from_table`; ``path/to/file.py`` without a name selects all rules
            of the file.
        run: run directory, or ``s3://bucket/prefix``.

    Raises:
        ConfigError: a rule does not exist, a parameter is invalid, or the run is still running.
        NotARun: there is no run.
    """
    whole: dict[str, Mapping[str, Any]] = {}
    for name, settings in table.items():
        names = references_in(Path(name), "rules") if name.endswith(".py") else [name]
        whole |= dict.fromkeys(names, settings)
    rules = rules_from_table(whole)
    recorded = open_run(run)
    if not recorded.status.over:
        raise ConfigError(f"{run}: is still running; try rules on a run that is over")
    steps = 0

    def count(_step: Step, _engine: Engine) -> None:
        nonlocal steps
        steps += 1

    began = time.perf_counter()
    findings = judge(recorded, rules, on_step=count)
    seconds = time.perf_counter() - began
    again = judge(recorded, rules)
    assert findings.checks is not None, "a run was judged"
    failed = dict.fromkeys(finding.rule for finding in findings if _FAILED in finding.seen)
    return RuleCheck(
        run=run,
        checks=findings.checks,
        findings=tuple(findings),
        steps=steps,
        seconds=seconds,
        same=[finding.to_json() for finding in findings] == [one.to_json() for one in again],
        failed=tuple(failed),
    )


# Wording of `RuleRunner`.
_FAILED = "the rule itself failed"
