"""`vinedresser judge` and `vinedresser show`: looking into one run."""

from __future__ import annotations

from pathlib import Path, PurePath
from typing import Annotated

import typer

from vinedresser.cli.options import PresetOption, RuleOption, RunArgument, rules_asked_for
from vinedresser.errors import ConfigError

__all__ = ["judge", "show"]


def judge(
    run: RunArgument,
    preset: PresetOption = None,
    rule: RuleOption = None,
    stop: Annotated[
        bool, typer.Option("--stop", help="Stop a running training when a rule says so.")
    ] = False,
) -> None:
    """Judge a run by rules, live or long after.

    All the built-in rules judge it if neither a preset nor a rule is named.
    """
    from vinedresser.cli.views.terminal import console, print_finding
    from vinedresser.rules.judge import judge as judge_run
    from vinedresser.rules.registry import rules_from_table
    from vinedresser.store.reading.reader import open_run

    named = preset if preset or rule else "default"
    rules = rules_from_table(rules_asked_for(named, rule))
    found = judge_run(open_run(run), rules, live=stop, on_finding=print_finding)
    if not found:
        console.print(
            f"{PurePath(run).name}: no findings by {', '.join(rule.name for rule in rules)}"
        )


def show(
    run: RunArgument,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A tensor or scalar of it.")
    ] = None,
    *,
    step: Annotated[int | None, typer.Option(help="One step instead of all.")] = None,
    mode: Annotated[str, typer.Option(help="train, eval or predict.")] = "train",
    rank: Annotated[int, typer.Option(help="Of a distributed run.")] = 0,
    draw: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw it to FILE: .svg, .html, or .png for images."),
    ] = None,
    as_: Annotated[
        str | None,
        typer.Option("--as", help="What to draw: curve, histogram or images; else what fits."),
    ] = None,
) -> None:
    """Show what a run captured.

    With a NAME, the values of that tensor or scalar; with --draw, a picture of it.
    """
    from vinedresser.cli.views.show import draw_name, show_name, show_run
    from vinedresser.store.reading.reader import open_run

    opened = open_run(run)
    if name is None:
        if draw is not None:
            raise ConfigError(f"--draw {draw}: say of which tensor or scalar")
        show_run(opened)
    elif draw is not None:
        draw_name(opened, name, draw, step=step, mode=mode, rank=rank, kind=as_)
    else:
        show_name(opened, name, step=step, mode=mode, rank=rank)
