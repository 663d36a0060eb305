"""Rules: the table of all, and the check of one."""

from __future__ import annotations

import inspect
from collections.abc import Mapping

from rich.table import Table

from vinedresser.cli.views.console import plain_table, say
from vinedresser.cli.views.results import print_finding
from vinedresser.rules.base import Rule
from vinedresser.rules.rule_check import RuleCheck

__all__ = ["print_check", "rules_table"]


def rules_table(rules: Mapping[str, type[Rule]]) -> Table:
    """Return a table with the severity of each rule and what it finds."""
    table = plain_table()
    for name in ("rule", "severity", "finds"):
        table.add_column(name, no_wrap=name != "finds")
    for name, rule in rules.items():
        table.add_row(name, rule.severity, (inspect.getdoc(rule) or "").partition("\n")[0])
    return table


def print_check(check: RuleCheck) -> None:
    """Print what rules found in a recorded run, and whether they behaved."""
    each = 1e6 * check.seconds / check.steps if check.steps else 0.0
    say(
        f"{check.run}: {', '.join(check.checks.rules)}: {check.steps} steps, {each:.0f} us per step"
    )
    for finding in check.findings:
        say(f"  {finding.severity} at step {finding.step}")
        print_finding(finding)
    if not check.findings:
        say("  no findings")
    if lacks := check.checks.lacks:
        say(f"  the run lacks what the rules need: {lacks}", style="yellow")
        say(f"  try            {check.checks.advice}")
    if not check.same:
        say("  different findings on the second pass: the rule keeps state elsewhere", style="red")
