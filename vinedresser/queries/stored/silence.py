"""Why a query to a stored run has no answer, although the run has its names."""

from __future__ import annotations

import re

from vinedresser.errors import QueryError
from vinedresser.queries.naming import SPELLINGS, matching
from vinedresser.queries.query import Query
from vinedresser.queries.stored.needs import stored_needs
from vinedresser.store.reading.reader import Run
from vinedresser.store.step_record import MODES, Mode

_WHERE = {"train": "while training", "eval": "in evaluations", "predict": "in predictions"}


def explain_silence(run: Run, query: Query) -> None:
    """Say why a query whose names exist was never answered.

    Raises:
        QueryError: always, unless the run has stored no steps.
    """
    if not any(len(run.steps(None, rank)) for rank in run.ranks):
        return
    names = [*run.scalar_names(), *run.tensor_names()]
    reductions = stored_needs(query).reductions
    for need in sorted(query.needs):
        found = matching(need, names) or matching(SPELLINGS.get(need, (need,))[0], names)
        reasons = [_reason(run, name, query.every.mode, reductions[need]) for name in found]
        if reasons and all(reasons):
            raise QueryError(f"{run.path}: {reasons[0]}")
    raise QueryError(
        f"{run.path}: {', '.join(sorted(query.needs))} were never stored at the same step "
        f"{_WHERE[query.every.mode]}"
    )


def _reason(run: Run, name: str, mode: Mode, words: frozenset[str] | None) -> str | None:
    """Return why a name cannot be read in a mode; None if it can."""
    if name in run.scalar_names():
        kinds = [one for one in MODES if name in run.scalars(f"^{re.escape(name)}$", mode=one)]
        return None if mode in kinds else _elsewhere(name, mode, kinds)
    view = run.tensor(name)
    full = [one for one in MODES if any(len(view.steps(one, rank)) for rank in run.ranks)]
    if mode in full:
        return None
    kept = sorted(view.reductions)
    if full or not kept:
        return _elsewhere(name, mode, full)
    needed = "" if not words else f" or its {', '.join(sorted(words))}"
    return f"{name}: only its {', '.join(kept)} were stored, and the query needs the tensor{needed}"


def _elsewhere(name: str, mode: Mode, kinds: list[Mode]) -> str:
    other = f", only {_WHERE[kinds[0]]}" if kinds else ""
    hint = {"eval": ": ask every evaluation", "train": ": ask every step"}
    return f"{name} was not stored {_WHERE[mode]}{other}{hint.get(kinds[0], '') if kinds else ''}"
