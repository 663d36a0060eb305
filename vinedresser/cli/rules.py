"""`vinedresser rules`: list, describe and test rules."""

from __future__ import annotations

from typing import Annotated

import typer

from vinedresser.cli.options import tables

__all__ = ["describe_rule", "list_rules", "rules", "test_rule"]

rules = typer.Typer(
    help="List, describe and test rules.", no_args_is_help=True, rich_markup_mode=None
)

_RuleArgument = Annotated[
    str,
    typer.Argument(
        metavar="RULE", help="Name of a rule, or path/to/file.py:Name for a custom one."
    ),
]


@rules.command("list")
def list_rules() -> None:
    """List the rules with their severity and what they find."""
    from vinedresser.cli.views.console import console
    from vinedresser.cli.views.rule_views import rules_table
    from vinedresser.rules.registry import known_rules

    console.print(rules_table(known_rules()))


@rules.command("describe")
def describe_rule(rule: _RuleArgument) -> None:
    """Describe a rule, its parameters and needs."""
    from vinedresser.rules.registry import describe, find_rules

    typer.echo("\n".join(map(describe, find_rules(rule))), nl=False)


@rules.command("test")
def test_rule(
    rule: Annotated[
        str,
        typer.Argument(
            metavar="RULE[:KEY=VALUE,...]",
            help="path/to/file.py:Name, or all rules of path/to/file.py.",
        ),
    ],
    run: Annotated[
        list[str], typer.Option("--run", metavar="RUN", help="Run to judge; repeatable.")
    ],
) -> None:
    """Test a rule on recorded runs.

    Each run is judged twice. Prints the findings, the time per step and missing tensors. The exit
    code is 1 if the rule failed or if its findings differ between the two passes.
    """
    from vinedresser.infra.supervise.judge_environment import use_one_thread

    use_one_thread()
    from vinedresser.cli.views.rule_views import print_check
    from vinedresser.rules.rule_check import try_rules

    checks = [try_rules(tables("RULE", [rule]), one) for one in run]
    for check in checks:
        print_check(check)
    raise typer.Exit(0 if all(check.sound for check in checks) else 1)
