"""Selection of tensors and scalars by collection and regex."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from vinedresser.errors import ConfigError, did_you_mean
from vinedresser.store.collections.collection import BUILT_IN, Collection
from vinedresser.store.index.layout import ColumnLayout

_Test = Callable[[str], bool]


class Selector:
    """Selects names by collection, as defined in the run's capture configuration, and by regex.

    Args:
        capture: the capture configuration as JSON (`RunRecord.capture`).
    """

    def __init__(self, capture: Mapping[str, Any]) -> None:
        self._capture = capture
        self._members: dict[str, _Test] = {}
        self._places: dict[tuple[ColumnLayout, str], tuple[tuple[str, ...], list[int]]] = {}

    def knows(self, collection: str) -> bool:
        """Return whether a collection is built in or defined in the run's configuration."""
        return collection in BUILT_IN or collection in self._capture

    def members(self, collection: str) -> _Test:
        """Return a test for membership in a collection.

        The members of an unknown collection are the names that begin with its name and a slash.

        Raises:
            ConfigError: its definition in the run's configuration is invalid.
        """
        if collection not in self._members:
            document = self._capture.get(collection)
            found = (
                Collection(collection)
                if document is None
                else Collection.from_json(collection, document)
            )
            self._members[collection] = found.holds
        return self._members[collection]

    def test(self, regex: str | None = None, collection: str | None = None) -> _Test:
        """Return a test for membership in a collection and for matching a regex; None: any.

        Raises:
            ConfigError: the regex is invalid, or the run has no such collection.
        """
        tests: list[_Test] = []
        if collection is not None:
            if not self.knows(collection):
                known = [*BUILT_IN, *self._capture]
                hint = did_you_mean(collection, known) or f"; it has {', '.join(known)}"
                raise ConfigError(f"{collection}: the run has no such collection{hint}")
            tests.append(self.members(collection))
        if regex is not None:
            tests.append(_matcher(regex))
        return lambda name: all(test(name) for test in tests)

    def either(self, select: str | None) -> _Test:
        """Return a test for the name of a collection, or else for a regex; None: any name.

        Raises:
            ConfigError: the text is neither.
        """
        if select is not None and self.knows(select):
            return self.test(collection=select)
        return self.test(regex=select)

    def places(self, layout: ColumnLayout, collection: str) -> tuple[tuple[str, ...], list[int]]:
        """Return the names of a layout that are in a collection, and their positions."""
        key = (layout, collection)
        if key not in self._places:
            test = self.members(collection)
            names = tuple(name for name in layout.names if test(name))
            self._places[key] = (names, [layout.places[name] for name in names])
        return self._places[key]


def _matcher(regex: str) -> _Test:
    try:
        pattern = re.compile(regex)
    except re.error as error:
        raise ConfigError(f"{regex!r} is not a valid regex: {error}") from error
    return lambda name: pattern.search(name) is not None
