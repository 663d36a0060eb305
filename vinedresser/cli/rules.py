"""`vinedresser rules`: which rules there are, what one does, and trying one out on a run."""

from __future__ import annotations

from typing import Annotated

import typer

from vinedresser.cli.options import tables

__all__ = ["describe_rule", "list_rules", "rules", "test_rule"]

rules = typer.Typer(
    help="The rules: which there are, what they do, and whether one of your own works.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_RuleArgument = Annotated[
    str,
    typer.Argument(metavar="RULE", help="Its name, or path/to/file.py:Name for one of your own."),
]


@rules.command("list")
def list_rules() -> None:
    """List the rules, what they find, and whether they stop a run."""
    from vinedresser.cli.views.terminal import console, rules_table
    from vinedresser.rules.registry import known_rules

    console.print(rules_table(known_rules()))


@rules.command("describe")
def describe_rule(rule: _RuleArgument) -> None:
    """Say what a rule does, with its parameters and what it needs."""
    from vinedresser.rules.registry import describe, find_rule

    typer.echo(describe(find_rule(rule)), nl=False)


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
        list[str],
        typer.Option("--run", metavar="RUN", help="A run to judge by it; may be repeated."),
    ],
) -> None:
    """Try a rule out on recorded runs.

    It is shown each run twice; says what it found, how long a step takes it, what of its needs was
    not there. The exit code is 1 when it failed, or found another thing the second time.
    """
    from vinedresser.cli.views.terminal import console, print_trial
    from vinedresser.rules.rule_check import try_rules

    trials = [try_rules(tables("RULE", [rule]), one) for one in run]
    for trial in trials:
        print_trial(trial, to=console)
    raise typer.Exit(0 if all(trial.sound for trial in trials) else 1)
