"""Asking a training or a stored run."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Sequence

from vinedresser.queries.answer import Answer
from vinedresser.queries.live.asking import ask_running, is_asked_live
from vinedresser.queries.query import Query
from vinedresser.queries.standing import DEFAULT_RATE
from vinedresser.queries.stored.answering import answers_of
from vinedresser.queries.stored.saving import saved
from vinedresser.store.reading.reader import Run, open_run


def ask(
    run: str | os.PathLike[str] | Run,
    query: str | Query,
    every: str | None = None,
    *,
    ranks: Sequence[int] | None = None,
    follow: bool = False,
    live: bool | None = None,
    rate: float | None = DEFAULT_RATE,
    save: str | None = None,
) -> Generator[Answer]:
    """Return the answers to a query: of a running training, or from what a run has stored.

    A training that is asked evaluates the query at its events, whether it stores the values or not,
    until it ends or the iterator is closed.

    Args:
        run: an opened run, its directory or its ``s3://`` URL; finished or still being written.
        query: the query, such as ``"norm(gradients) by layer"``.
        every: what closes a window, such as "100 steps", "epoch" or "evaluation", unless the query
            says so itself; None: every step.
        ranks: ranks of a distributed run; None: all.
        follow: of what a run stores: also wait for new steps, until the run ends.
        live: ask the running training; None: if it runs on this machine, and lets itself be asked
            (``Hook(live=True)``), and `follow` is false.
        rate: maximum number of windows per second and rank that a training evaluates; None: no
            limit.
        save: name of a stream of the run to which the answers are appended while they pass; None:
            they are not kept.

    Returns:
        The answers, one for each window: of a training as they come, of a stored run in the order
        of their last steps.

    Raises:
        ConfigError: the text is not a query, its windows are closed by what runs do not store, or
            the name of the stream is not valid.
        UnknownTensor: a stored run has no such names; the message suggests similar ones.
        QueryError: while iterating: the run has the names, but never as the query needs them; or a
            running training has no such names, or the query costs it too much.
        NotARun: there is no run at this place.
        AgentAway: while iterating: ``live``, and nobody listens.
        CorruptData: its run.json is invalid.
        StoreError: the storage refused.
    """
    opened = run if isinstance(run, Run) else open_run(run)
    parsed = query if isinstance(query, Query) else Query.parse(query, every)
    answers: Iterator[Answer]
    if live or (live is None and not follow and is_asked_live(opened)):
        answers = ask_running(opened, parsed, ranks=ranks, rate=rate)
    else:
        answers = answers_of(opened, parsed, ranks=ranks, follow=follow)
    return _closing(answers if save is None else saved(answers, opened, save))


def _closing(answers: Iterator[Answer]) -> Generator[Answer]:
    """Yield answers; closing this generator ends the query, and writes what is kept of it."""
    yield from answers
