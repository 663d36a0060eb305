"""`vinedresser ask`: ask a running training, or a stored run."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Annotated

import typer

from vinedresser.cli.options import RunArgument
from vinedresser.errors import ConfigError, QueryError

__all__ = ["ask"]


def ask(
    run: RunArgument,
    query: Annotated[
        str,
        typer.Argument(metavar="QUERY", help="Such as 'norm(gradients) by layer'."),
    ],
    *,
    every: Annotated[
        str | None,
        typer.Option(
            metavar="WINDOW",
            help="Answer at the end of each window: step, '100 steps', '30 seconds', epoch, "
            "evaluation, or an event of the script (default: step).",
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="End after N answers.")
    ] = None,
    rate: Annotated[
        float,
        typer.Option(min=0, metavar="N", help="Answer N times a second at most; 0: no limit."),
    ] = 10.0,
    rank: Annotated[str, typer.Option(metavar="RANK|all", help="Rank to ask.")] = "0",
    stored: Annotated[
        bool,
        typer.Option("--stored", help="Answer from what was stored, also while the run trains."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print answers as JSON lines.")] = False,
) -> None:
    """Ask a running training, or what a run has stored.

    A training must allow it (run --live, Hook(live=True)); the query ends with this command.
    """
    from vinedresser.cli.views.answers import answer_view
    from vinedresser.cli.views.console import console
    from vinedresser.queries.asking import ask as asked
    from vinedresser.store.reading.reader import open_run

    ranks, opened = _ranks(rank), open_run(run)
    live = not stored and not opened.finished
    answers = asked(opened, query, every, ranks=ranks, live=live, rate=rate or None)
    with suppress(KeyboardInterrupt):
        for number, answer in enumerate(answers, 1):
            if answer.error is not None:
                raise QueryError(f"{run}: {answer.error}")
            if as_json:
                typer.echo(answer.to_json())
            else:
                for part in answer_view(answer, ranks=ranks is None or len(ranks) > 1):
                    console.print(part, soft_wrap=not console.is_terminal)
            sys.stdout.flush()
            if number == limit:
                break


def _ranks(text: str) -> tuple[int, ...] | None:
    """Return the ranks to ask; None: all.

    Raises:
        ConfigError: the text is not a rank.
    """
    if text == "all":
        return None
    if not text.isdecimal():
        raise ConfigError(f"--rank: must be a number or all, not {text!r}")
    return (int(text),)
