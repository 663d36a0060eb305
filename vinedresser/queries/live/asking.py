"""Asking a running training: one rank, or several at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vinedresser.errors import AgentAway
from vinedresser.queries.answer import Answer
from vinedresser.queries.live.client import agent_status, ask_live
from vinedresser.queries.live.ranks import RankAnswers
from vinedresser.queries.query import Query
from vinedresser.queries.ranks import check_rank
from vinedresser.store.reading.reader import Run

__all__ = ["ask_running", "is_asked_live"]


def is_asked_live(run: Run) -> bool:
    """Return whether a run is running, and lets itself be asked on this machine."""
    if run.finished:
        return False
    try:
        agent_status(run.path)
    except AgentAway:
        return False
    return True


def ask_running(
    run: Run, query: Query, *, ranks: Sequence[int] | None, rate: float | None
) -> Iterator[Answer]:
    """Ask a running training; yield the answers as they come, until it ends.

    Closing the iterator ends the query.

    Args:
        run: the run.
        query: the query.
        ranks: ranks to ask; None: all.
        rate: maximum number of windows per second and rank; None: no limit.

    Raises:
        AgentAway: the run is over, a rank is dead, or it does not let itself be asked.
        ConfigError: the run does not have this rank, or the training refuses the query.
    """
    status = run.status
    if status.over:
        raise AgentAway(f"{run.path}: the run is {status.words}, not running")
    chosen = tuple(range(run.info.world_size) if ranks is None else ranks)
    for rank in chosen:
        check_rank(run, rank)
    try:
        if len(chosen) == 1:
            yield from ask_live(run.path, query, rank=chosen[0], rate=rate)
        else:
            yield from RankAnswers(run.path, query, chosen, rate)
    except AgentAway as error:
        status = run.status
        if status.over:
            # It has ended meanwhile.
            return
        hint = status.reason or (
            "start the training with `vinedresser run --live`, Hook(live=True) or [live] enabled = "
            "true, and ask as its user on its machine"
        )
        raise AgentAway(f"{error}: {hint}") from error
