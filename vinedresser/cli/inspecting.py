"""`vinedresser judge` and `vinedresser show`: inspect one run."""

from __future__ import annotations

from pathlib import Path, PurePath
from typing import Annotated

import typer

from vinedresser.cli.options import PresetOption, RuleOption, RunArgument, selected_rules
from vinedresser.errors import ConfigError

__all__ = ["judge", "show"]


def judge(
    run: RunArgument,
    preset: PresetOption = None,
    rule: RuleOption = None,
    stop: Annotated[
        bool, typer.Option("--stop", help="Stop a running training if a rule demands it.")
    ] = False,
) -> None:
    """Judge a run by rules, while it trains or later.

    Without --preset and --rule, the built-in rules judge it.
    """
    from vinedresser.infra.supervise.judge_environment import use_one_thread

    use_one_thread()
    from vinedresser.cli.views.console import console
    from vinedresser.cli.views.results import print_finding
    from vinedresser.rules.judge import judge as judge_run
    from vinedresser.rules.registry import rules_from_table
    from vinedresser.store.reading.reader import open_run

    named = preset if preset or rule else "default"
    rules = rules_from_table(selected_rules(named, rule))
    found = judge_run(open_run(run), rules, live=stop, on_finding=print_finding)
    if not found:
        by = rules[0].name if len(rules) == 1 else f"{len(rules)} rules"
        console.print(f"{PurePath(run).name}: no findings by {by}")


def show(
    run: RunArgument,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A tensor or scalar of the run.")
    ] = None,
    *,
    step: Annotated[int | None, typer.Option(help="Show this step only.")] = None,
    mode: Annotated[
        str | None,
        typer.Option(
            help="Mode: train, eval or predict (default: train; --embeddings: eval if captured)."
        ),
    ] = None,
    rank: Annotated[int, typer.Option(help="Rank of a distributed run.")] = 0,
    draw: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw it to FILE: .svg, .html, or .png for images."),
    ] = None,
    as_: Annotated[
        str | None,
        typer.Option(
            "--as", help="Picture to draw: curve, histogram or images (default: by shape)."
        ),
    ] = None,
    attention: Annotated[
        bool,
        typer.Option(
            "--attention",
            help="Write a page of its attention by layer and head; with NAME, of that tensor.",
        ),
    ] = False,
    embeddings: Annotated[
        str | None,
        typer.Option(
            "--embeddings",
            metavar="NAME",
            help="Write a page of that activation by PCA and t-SNE, step by step; or a .png.",
        ),
    ] = None,
    mispredictions: Annotated[
        bool,
        typer.Option(
            "--mispredictions",
            help="Write a page of the wrong predictions by true and predicted class; or a .png.",
        ),
    ] = False,
    log: Annotated[
        bool, typer.Option("--log", help="Also upload that page to the MLflow run of the run.")
    ] = False,
    saliency: Annotated[
        bool,
        typer.Option(
            "--saliency",
            help="Write a page of saliency maps of captured examples, step by step; or a .png.",
        ),
    ] = False,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="With --saliency: function that returns the torch model, with any weights.",
        ),
    ] = None,
    example: Annotated[int, typer.Option(help="Number of the example to draw.")] = 0,
    tokens: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Tokens of that example, one per line (UTF-8)."),
    ] = None,
) -> None:
    """Show what a run captured.

    With NAME, print the values of that tensor or scalar; with --draw, draw it.
    """
    from vinedresser.cli.views.pictures import (
        draw_attention,
        draw_embeddings,
        draw_mispredictions,
        draw_saliency,
        log_page,
    )
    from vinedresser.cli.views.show import draw_name, show_name, show_run
    from vinedresser.store.reading.reader import open_run

    if log and not (attention or embeddings or mispredictions or saliency):
        raise ConfigError("--log: give --attention, --embeddings, --mispredictions or --saliency")
    opened = open_run(run)
    page: Path | None = None
    if attention:
        page = draw_attention(
            opened, name, draw, step=step, mode=mode, rank=rank, example=example, tokens=tokens
        )
    elif embeddings is not None:
        page = draw_embeddings(opened, embeddings, draw, mode=mode, rank=rank)
    elif mispredictions:
        page = draw_mispredictions(opened, draw, step=step)
    elif saliency:
        page = draw_saliency(opened, draw, model=model)
    elif name is None:
        if draw is not None:
            raise ConfigError(f"--draw {draw}: give the NAME of a tensor or scalar")
        show_run(opened)
    elif draw is not None:
        draw_name(opened, name, draw, step=step, mode=mode or "train", rank=rank, kind=as_)
    else:
        show_name(opened, name, step=step, mode=mode or "train", rank=rank)
    if log and page is not None:
        log_page(run, page)
