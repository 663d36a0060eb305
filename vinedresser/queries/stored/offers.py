"""What each record of a run offers to a query, as its index says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vinedresser.queries.language.context import OF_THE_MODEL
from vinedresser.queries.naming import SPELLINGS, matching
from vinedresser.queries.stored.event import ROOTS, Offer, Place
from vinedresser.queries.stored.needs import StoredNeeds
from vinedresser.store.index.index_record import AliasGroup, ColumnGroup, TensorGroup
from vinedresser.store.index.layout import AliasLayout, ColumnLayout, TensorLayout
from vinedresser.store.reductions import base_name, parse_reduction
from vinedresser.store.segments.segment import Segment

__all__ = ["Offers", "RowOffer", "sizes_of"]

_Layout = TensorLayout | AliasLayout | ColumnLayout
_Group = TensorGroup | AliasGroup | ColumnGroup
_Key = tuple[tuple[int, _Layout], ...]


class RowOffer(NamedTuple):
    """Rows of a segment that offer the same.

    Attributes:
        rows: int64 [n], ascending.
        mode: position of their mode in `MODES`.
    """

    rows: NDArray[np.int64]
    mode: int
    offer: Offer


class Offers:
    """Finds what the records of a rank offer to a query.

    A record that has only some of the tensors that the query means, because collections have
    different schedules, does not offer them: the norm of some gradients is not that of all.

    Args:
        needs: what the query reads.
        numbers: names that are numbers of the record itself, such as "step".
        sizes: numbers of elements of tensors, as far as they are known.
    """

    def __init__(
        self, needs: StoredNeeds, numbers: Iterable[str], sizes: Mapping[str, int]
    ) -> None:
        self._needs = needs
        self._numbers = tuple(name for name in numbers if name in needs.reductions)
        self._sizes = sizes
        self._relevant: dict[_Layout, tuple[str, ...]] = {}
        self._offers: dict[_Key, Offer] = {}
        # The sets of names that occur for each name of the query, by mode.
        self._sets: dict[tuple[int, str], set[frozenset[str]]] = {}

    def of(self, segment: Segment) -> list[RowOffer]:
        """Return what the records of a segment offer, and remember which tensors are together."""
        modes = segment.record.rows.modes
        found = []
        for groups, rows in self._patterns(segment):
            key = tuple((number, group.layout) for number, group in groups)
            if key not in self._offers:
                self._offers[key] = self._offer(key)
            offer = self._offers[key]
            for mode in np.unique(modes[rows]).tolist():
                found.append(RowOffer(rows[modes[rows] == mode], mode, offer))
                for need in self._needs.reductions:
                    together = frozenset(matching(need, offer.names))
                    self._sets.setdefault((mode, need), set()).add(together)
        return found

    def complete(self, mode: int, offer: Offer) -> Offer:
        """Return an offer, or an empty one if others of its mode have more of its tensors."""
        for need in self._needs.reductions:
            together = frozenset(matching(need, offer.names))
            if any(together < other for other in self._sets.get((mode, need), ()) if together):
                return Offer(self._numbers)
        return offer

    def _patterns(
        self, segment: Segment
    ) -> Iterator[tuple[list[tuple[int, _Group]], NDArray[np.int64]]]:
        """Yield the groups that occur together, with their numbers, and the rows where they do."""
        record = segment.record
        groups: list[tuple[int, _Group]] = [*enumerate(record.columns), *enumerate(record.named)]
        groups = [(number, group) for number, group in groups if self._names(group.layout)]
        there = np.zeros((len(segment), len(groups)), np.bool_)
        for column, (_, group) in enumerate(groups):
            there[segment.rows_of(group), column] = True
        kinds, which = np.unique(there, axis=0, return_inverse=True)
        for number, kind in enumerate(kinds.tolist()):
            present = [one for one, is_there in zip(groups, kind, strict=True) if is_there]
            yield present, np.flatnonzero(which.reshape(-1) == number)

    def _names(self, layout: _Layout) -> tuple[str, ...]:
        """Return the names of a layout that the query may mean."""
        if layout not in self._relevant:
            words = {word for need in self._needs.reductions for word in SPELLINGS.get(need, ())}
            self._relevant[layout] = tuple(
                name
                for name in layout.names
                if name in words or (base_name(name) is None and self._needs.of(name))
            )
        return self._relevant[layout]

    def _offer(self, key: _Key) -> Offer:
        scalars: dict[str, Place] = {}
        statistics: dict[tuple[str, str], Place] = {}
        tensors: dict[str, int] = {}
        for number, layout in key:
            for name in self._names(layout):
                place = layout.places[name]
                if not isinstance(layout, ColumnLayout):
                    tensors[name] = self._sizes.get(name, 0)
                elif layout.reductions is None:
                    scalars[name] = number, (place,)
                else:
                    for at, word in enumerate(layout.reductions):
                        canonical = parse_reduction(word).canonical
                        statistics[name, canonical] = number, (place, at)
        for word in self._needs.reductions:
            for spelling in SPELLINGS.get(word, ()):
                if spelling in scalars:
                    scalars.setdefault(word, scalars[spelling])
        chosen = any(matching(need, tuple(tensors)) for need in self._needs.chooses)
        known: dict[str, set[str]] = {}
        for name, word in statistics:
            known.setdefault(name, set()).add(word)
        enough = {name for name, words in known.items() if self._enough(name, words, chosen)}
        names = dict.fromkeys([*self._numbers, *scalars, *tensors, *known])
        wanted = [
            name
            for name in names
            if (name in enough or name not in known or name in tensors)
            and (name in self._needs.reductions or self._needs.of(name))
        ]
        return Offer(
            tuple(wanted),
            scalars,
            {key: place for key, place in statistics.items() if key[0] in enough},
            {name: size for name, size in tensors.items() if name not in enough},
        )

    def _enough(self, name: str, words: set[str], chosen: bool) -> bool:
        """Return whether statistics of a tensor are enough for the query."""
        if chosen and not name.startswith(OF_THE_MODEL):
            return False
        words = words | {word for word, root in ROOTS.items() if root in words}
        for need in self._needs.of(name):
            wanted = self._needs.reductions[need]
            if wanted is None or not wanted <= words or (not wanted and name not in self._sizes):
                return False
        return True


def sizes_of(segments: Iterable[Segment]) -> dict[str, int]:
    """Return the number of elements of each tensor that was ever stored in full."""
    layouts = dict.fromkeys(
        group.layout for segment in segments for group in segment.record.tensors
    )
    found = {
        name: prod(shape)
        for layout in layouts
        for name, shape in zip(layout.names, layout.shapes, strict=True)
    }
    aliases = dict.fromkeys(
        group.layout for segment in segments for group in segment.record.aliases
    )
    for alias in aliases:
        for name, target in zip(alias.names, alias.targets, strict=True):
            found[name] = found.get(target, 0)
    return found
