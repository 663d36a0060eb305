"""Answering a query from what a run has stored."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from heapq import merge

from vinedresser.errors import ConfigError, UnknownTensor
from vinedresser.objects.location import is_remote
from vinedresser.queries.answer import Answer
from vinedresser.queries.language.budget import OF_A_STORE
from vinedresser.queries.naming import SPELLINGS, check_names
from vinedresser.queries.query import Query
from vinedresser.queries.ranks import check_rank
from vinedresser.queries.standing import StandingQuery
from vinedresser.queries.stored.silence import explain_silence
from vinedresser.queries.stored.walking import NUMBERS, RankEvents
from vinedresser.store.reading.reader import Run

__all__ = ["StoredRank", "answers_of", "check_stored", "stored_names"]

# Seconds between looks for new steps.
_LOCAL, _REMOTE = 0.05, 1.0


def answers_of(
    run: Run, query: Query, *, ranks: Sequence[int] | None = None, follow: bool = False
) -> Iterator[Answer]:
    """Return the answers to a query from the steps and evaluations that a run has stored.

    They equal those of the training for the same values, without a rate limit. Damaged values are
    left out and added to `Run.problems`.

    Args:
        run: the run; what was committed up to its last `refresh` counts.
        ranks: ranks of a distributed run; None: all.
        follow: also wait for new steps, until the run ends.

    Returns:
        The answers, in the order of their last steps.

    Raises:
        ConfigError: the windows are closed by what a run does not store.
        UnknownTensor: the run has no such names; the message suggests similar ones.
        QueryError: while iterating: the run has the names, but never as the query needs them.
        StoreError: while iterating: the storage refused.
    """
    _check_windows(query)
    chosen = run.ranks if ranks is None else tuple(ranks)
    for rank in chosen:
        check_rank(run, rank)
        if rank not in run.ranks and not follow:
            raise ConfigError(f"rank {rank}: {run.path} has stored nothing of it")
    if run.ranks or not follow:
        check_stored(run, query)
    return _walked(run, query, ranks, follow)


def stored_names(run: Run) -> list[str]:
    """Return the names that queries to a stored run may use."""
    found = dict.fromkeys([*NUMBERS, *run.scalar_names(), *run.tensor_names()])
    for word, spellings in SPELLINGS.items():
        if any(spelling in found for spelling in spellings):
            found.setdefault(word)
    return [*found] if len(found) > len(NUMBERS) else []


def _check_windows(query: Query) -> None:
    if query.every.kind == "event":
        raise ConfigError(
            f"every {query.every}: a run does not store events of this name; use steps, seconds, "
            "epoch, evaluation or flush"
        )


def check_stored(run: Run, query: Query) -> None:
    """Check that a query can be put to a stored run.

    Raises:
        ConfigError: the windows are closed by what the run has not stored.
        UnknownTensor: the run has no such names; the message suggests similar ones.
    """
    _check_windows(query)
    names = stored_names(run)
    try:
        check_names(query.needs, names)
    except UnknownTensor as error:
        said = str(error).replace("the training offers", "the run has stored")
        raise UnknownTensor(f"{run.path}: {said}") from None
    if query.every.kind == "epoch" and "epoch" not in names:
        raise ConfigError(
            f"every epoch: {run.path} has not stored its epochs; save them as a metric named epoch "
            "(hook.save), or use steps"
        )


def _walked(run: Run, query: Query, ranks: Sequence[int] | None, follow: bool) -> Iterator[Answer]:
    by_rank: dict[int, StoredRank] = {}
    answered = False
    while True:
        # Asked before reading: after the end, nothing is missed below.
        over = not follow or run.finished
        if follow:
            begun = bool(run.ranks)
            run.refresh()
            if run.ranks and not begun:
                check_stored(run, query)
        for rank in run.ranks if ranks is None else ranks:
            by_rank.setdefault(rank, StoredRank(run, query, rank))
        closed = merge(*(one.fresh() for one in by_rank.values()), key=_order)
        for answer in closed:
            answered = True
            yield answer
        if over:
            break
        time.sleep(_REMOTE if is_remote(run.storage.location) else _LOCAL)
    last = [found for one in by_rank.values() for found in one.last()]
    yield from sorted(last, key=_order)
    if not last and not answered and not any(one.answerable for one in by_rank.values()):
        explain_silence(run, query)


def _order(answer: Answer) -> tuple[int, int]:
    return answer.step, answer.rank


class StoredRank:
    """A query to what one rank of a run has stored.

    Args:
        query: the query; see `check_stored`.
    """

    def __init__(self, run: Run, query: Query, rank: int) -> None:
        self._events = RankEvents(run, query, rank)
        self._standing = StandingQuery(query, rate=None, limits=OF_A_STORE)
        self._run = run

    @property
    def answerable(self) -> bool:
        """Whether a record has offered everything that the query reads."""
        return self._standing.answerable

    def fresh(self) -> Iterator[Answer]:
        """Yield the answers of windows that newly committed steps close."""
        standing = self._standing
        for event in self._events.fresh() if standing.ended is None else ():
            found = standing.observe(event)
            yield from found
            if standing.damage is not None:
                self._run.problem_log.note(standing.damage)
            if found and found[-1].ended:
                return

    def last(self) -> list[Answer]:
        """Return the answer of the open window if it has events."""
        found = self._standing.flush()
        return [] if found is None else [replace(found, ended=True)]
