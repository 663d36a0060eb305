"""`vinedresser ask`: ask a running training, or a stored run."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path, PurePath
from threading import Event, Thread
from typing import TYPE_CHECKING, Annotated

import typer

from vinedresser.cli.options import RunArgument, check_number
from vinedresser.errors import ConfigError, QueryError, VinedresserError, did_you_mean
from vinedresser.plain_text import visible

if TYPE_CHECKING:
    from vinedresser.queries.answer import Answer
    from vinedresser.queries.every import Every
    from vinedresser.store.reading.reader import Run

# Seconds without an answer after which that is explained.
_SOON = 10.0


def ask(
    run: RunArgument,
    query: Annotated[
        str | None,
        typer.Argument(
            metavar="QUERY",
            help="Such as 'norm(gradients) by layer'; without one, the names that can be asked.",
            show_default=False,
        ),
    ] = None,
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
        typer.Option(
            callback=check_number,
            metavar="N",
            help="Answer N times a second at most; 0: no limit.",
        ),
    ] = 10.0,
    rank: Annotated[str, typer.Option(metavar="RANK|all", help="Rank to ask.")] = "0",
    stored: Annotated[
        bool,
        typer.Option("--stored", help="Answer from what was stored, also while the run trains."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print answers as JSON lines.")] = False,
    save: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Also append the answers to this stream of the run."),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also draw the answers to FILE: .html or .svg."),
    ] = None,
    beside: Annotated[
        list[str] | None,
        typer.Option(metavar="RUN", help="With --plot: draw what RUN has stored, too; repeatable."),
    ] = None,
) -> None:
    """Ask a running training, or what a run has stored.

    A training must allow it (run --live, Hook(live=True)); the query ends with this command.
    """
    _check_drawing(run, beside or (), plot)
    from vinedresser.queries.asking import ask as asked
    from vinedresser.queries.query import Query
    from vinedresser.store.reading.reader import open_run

    ranks, opened = _ranks(rank), open_run(run)
    live = not stored and not opened.finished
    if query is None:
        _list(opened, ranks, live=live, as_json=as_json)
        return
    parsed = Query.parse(query, every)
    answers = asked(opened, parsed, ranks=ranks, live=live, rate=rate or None, save=save)
    waiting = _explained_wait(opened, parsed.every, (ranks or (0,))[0]) if live else nullcontext()
    drawn: list[Answer] = []
    try:
        with suppress(KeyboardInterrupt), closing(answers), waiting as answered:
            for number, answer in enumerate(answers, 1):
                if answered is not None:
                    answered.set()
                _print(run, answer, as_json=as_json, ranks=ranks is None or len(ranks) > 1)
                if plot is not None:
                    drawn.append(answer)
                if number == limit:
                    break
    except VinedresserError:
        # Such as that the training has died: its answers are drawn all the same.
        if plot is not None and drawn:
            _draw(plot, {run: drawn})
        raise
    if plot is not None:
        others = {other: asked(other, parsed, ranks=ranks, live=False) for other in beside or ()}
        _draw(plot, {run: drawn, **others})


def _print(run: str, answer: Answer, *, as_json: bool, ranks: bool) -> None:
    from vinedresser.cli.views.answers import answer_view
    from vinedresser.cli.views.console import console

    if answer.error is not None:
        raise QueryError(f"{run}: {answer.error}")
    if as_json:
        typer.echo(answer.to_json())
    else:
        for part in answer_view(answer, ranks=ranks):
            console.print(part, soft_wrap=not console.is_terminal)
    sys.stdout.flush()


def _check_drawing(run: str, beside: Sequence[str], plot: Path | None) -> None:
    """Check what is drawn, and where to, before answers come for hours."""
    if beside and plot is None:
        raise ConfigError("--beside: give --plot FILE")
    if len({run, *beside}) <= len(beside):
        raise ConfigError("--beside: a run is given twice")
    if plot is not None:
        from vinedresser.explain.charts.plot import check_target

        check_target(plot)


def _list(run: Run, ranks: tuple[int, ...] | None, *, live: bool, as_json: bool) -> None:
    """Print what can be asked.

    Raises:
        AgentAway: the training does not let itself be asked.
    """
    from vinedresser.queries.listing import names_to_ask

    found = names_to_ask(run, rank=ranks[0] if ranks else 0, live=live)
    if as_json:
        typer.echo(json.dumps(found.to_json()))
        return
    typer.echo(f"every: step, seconds, {', '.join(map(visible, found.events))}, flush")
    width = max((len(name) for name in found.names), default=0)
    for name, about in found.names.items():
        typer.echo(f"{visible(name):<{width}}  {visible(about)}".rstrip())


def _draw(target: Path, sources: dict[str, Iterable[Answer]]) -> None:
    """Draw answers of several runs into a file.

    Args:
        target: the file, .html or .svg.

    Raises:
        ConfigError: the answers are not numbers by step, or the file cannot be written.
    """
    from vinedresser.explain.answers_plot import plot_answers

    names = {run: PurePath(run).name for run in sources}
    if len(set(names.values())) < len(names):
        names = {run: run for run in sources}
    plot_answers({names[run]: answers for run, answers in sources.items()}).save(target)


def _ranks(text: str) -> tuple[int, ...] | None:
    """Return the ranks to ask; None: all."""
    if text == "all":
        return None
    if not text.isdecimal():
        raise ConfigError(f"--rank: must be a number or all, not {text!r}")
    return (int(text),)


@contextmanager
def _explained_wait(run: Run, every: Every, rank: int) -> Iterator[Event]:
    """Say on stderr why there is no answer, if there is none after ten seconds.

    Args:
        every: what closes the windows of the query.
        rank: the rank that is asked, or one of them.

    Yields:
        To be set with the first answer.
    """
    answered = Event()

    def explain() -> None:
        if answered.wait(_SOON):
            return
        try:
            told = _reason(run, every, rank)
        except VinedresserError:
            # The query itself fails likewise, and says so.
            return
        if not answered.is_set():
            from vinedresser.cli.views.console import error_console, say

            say(f"{run.path}: no answer yet: {told}", error_console)

    Thread(target=explain, name="vinedresser-waiting", daemon=True).start()
    try:
        yield answered
    finally:
        answered.set()


def _reason(run: Run, every: Every, rank: int) -> str:
    """Return why a query has not been answered.

    Raises:
        VinedresserError: the training does not respond.
    """
    from vinedresser.queries.listing import names_to_ask

    held = [control.kind for control in run.controls() if control.kind in ("pause", "resume")]
    if held and held[-1] == "pause":
        return "the training is paused"
    event = every.event or every.kind
    events = names_to_ask(run, rank=rank, live=True).events
    if every.kind == "event" and event not in events:
        hint = did_you_mean(event, ("step", "epoch", "evaluation", "flush", *events))
        return f"its script has not called hook.event({event!r}) so far{hint}"
    if every.kind == "flush":
        return "its windows are closed by flush_live"
    return f"its first window of {every} has not ended"
