"""Trying rules out on recorded runs: what they find, and whether they behave as rules must."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vinedresser.errors import ConfigError
from vinedresser.rules.base import Rule
from vinedresser.rules.custom_rules import references_in
from vinedresser.rules.engine import Engine
from vinedresser.rules.registry import rules_from_table
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import open_run

__all__ = ["RuleCheck", "try_rules"]


@dataclass(frozen=True)
class RuleCheck:
    """What became of some rules on one run.

    Attributes:
        run: where the run is.
        rules: their names.
        findings: what they found, in the order of the steps.
        steps: how many the run has, of all modes and ranks.
        seconds: that the rules took for them, reading included.
        same: they found the same when they were shown the run again.
        failed: names of the rules that raised an exception.
    """

    run: str
    rules: tuple[str, ...]
    findings: tuple[Finding, ...]
    steps: int
    seconds: float
    same: bool
    failed: tuple[str, ...]

    @property
    def sound(self) -> bool:
        """Whether they behaved as rules must."""
        return self.same and not self.failed


def try_rules(table: Mapping[str, Mapping[str, Any]], run: str) -> RuleCheck:
    """Show a run, as far as it is recorded, to rules, twice.

    Args:
        table: as `rules_from_table` takes it; of a ``path/to/file.py`` without a name, all rules.
        run: directory, or ``s3://bucket/prefix``.

    Raises:
        ConfigError: there is no such rule, a parameter is wrong, or the run still runs.
        NotARun: there is no run.
    """
    whole: dict[str, Mapping[str, Any]] = {}
    for name, settings in table.items():
        names = references_in(Path(name), "rules") if name.endswith(".py") else [name]
        whole |= dict.fromkeys(names, settings)
    rules = rules_from_table(whole)
    began = time.perf_counter()
    findings, steps = _judged(rules, run)
    seconds = time.perf_counter() - began
    again, _ = _judged(rules, run)
    failed = dict.fromkeys(one.rule for one in findings if _FAILED in one.seen)
    return RuleCheck(
        run=run,
        rules=tuple(rule.name for rule in rules),
        findings=tuple(findings),
        steps=steps,
        seconds=seconds,
        same=[one.to_json() for one in findings] == [one.to_json() for one in again],
        failed=tuple(failed),
    )


# As `RuleRunner` says it.
_FAILED = "the rule itself failed"


def _judged(rules: Iterable[Rule], location: str) -> tuple[list[Finding], int]:
    run = open_run(location)
    if not run.status.over:
        raise ConfigError(f"{location}: still runs; try rules out on a run that is over")
    engine = Engine(rules)
    engine.begin(run.info)
    findings: list[Finding] = []
    count = 0
    for step in run.follow():
        findings += engine.update(step)
        count += 1
    return findings + engine.finish(), count
