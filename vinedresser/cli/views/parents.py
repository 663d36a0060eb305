"""A line about each sweep or pruning of a store."""

from __future__ import annotations

import re
from shlex import quote

from vinedresser.errors import CorruptData
from vinedresser.explain.formatting import count
from vinedresser.infra.catalog.stores import places_in
from vinedresser.objects import Location
from vinedresser.pruning.spec import PruningRecord
from vinedresser.tasks.parents.kinds import kind_of, parent_state


def parent_line(store: Location) -> str:
    """Return in one line how a sweep or pruning stands, and the command that lists its runs.

    Raises:
        StoreError: the store refused a request.
    """
    kind = kind_of(store)
    assert kind is not None, "`parents_in` has found it"
    try:
        state = parent_state(store, kind)
    except CorruptData as error:
        state = f"unreadable: {error}"
    word = "round" if kind is PruningRecord else "trial"
    # One that crashed has several runs, and so has one whose script trains more than once.
    begun = {found[0] for one in places_in(store) if (found := re.match(rf"{word}-\d+", one.name))}
    shown = count(len(begun), word)
    return f"{kind.WORD} {store.name}   {state}   {shown}   vinedresser status {quote(str(store))}"
