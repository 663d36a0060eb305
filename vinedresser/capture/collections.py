"""Named sets of tensors."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

from vinedresser.capture.schedule import SaveConfig
from vinedresser.errors import ConfigError, did_you_mean

__all__ = ["BUILT_IN", "Collection", "check_collection_name"]

# Each holds the tensors whose names begin with its own name and a slash.
BUILT_IN = ("losses", "metrics", "weights", "biases", "gradients", "outputs", "saved")


@dataclass(frozen=True)
class Collection:
    """A set of tensors and when they are saved.

    A tensor belongs to it when its name begins with the collection's name and a slash, or when the
    regex is found in its name. Several collections may hold the same tensor.

    Attributes:
        name: its name; "" where the place it is given at names it.
        regex: found (`re.search`) in the full names of its tensors, such as ``outputs/relu1``; a
            collection that is not built in needs one.
        save: when its tensors are saved and what of them; several are united. Kept sorted and
            without duplicates.

    Raises:
        ConfigError: the regex is none, or stands at a built-in collection.
    """

    name: str = ""
    regex: str | None = None
    save: SaveConfig | tuple[SaveConfig, ...] = SaveConfig()  # noqa: RUF009 (frozen)

    def __post_init__(self) -> None:
        object.__setattr__(self, "save", _ordered(self.name, self.save))
        if self.regex is None:
            return
        if self.name in BUILT_IN:
            raise ConfigError(
                f"{self.name}: a built-in collection takes no regex; give a collection of another "
                f"name the regex {self.regex!r}"
            )
        try:
            re.compile(self.regex)
        except (re.error, TypeError) as error:
            raise ConfigError(
                f"{self.name or 'collection'}: regex {self.regex!r} is not valid: {error}"
            ) from error

    @property
    def saves(self) -> tuple[SaveConfig, ...]:
        """Its save configs."""
        return self.save if isinstance(self.save, tuple) else (self.save,)

    @cached_property
    def _pattern(self) -> re.Pattern[str] | None:
        return None if self.regex is None else re.compile(self.regex)

    def holds(self, name: str) -> bool:
        """Say whether a tensor of this full name belongs to the collection."""
        if name.startswith(f"{self.name}/"):
            return True
        return self._pattern is not None and self._pattern.search(name) is not None

    def reaches(self, kind: str) -> bool:
        """Say whether it may hold tensors whose names begin with ``kind`` and a slash."""
        if self.regex is None:
            return self.name == kind
        first, slash, _ = self.regex.removeprefix("^").partition("/")
        return not (slash and first in BUILT_IN) or first == kind

    def merged(self, other: Collection) -> Collection:
        """Return the collection of this name that saves what either of the two saves.

        Raises:
            ConfigError: their regexes differ.
        """
        if self.regex != other.regex:
            raise ConfigError(
                f"{self.name}: asked for with two patterns, {self.regex!r} and {other.regex!r}"
            )
        return replace(self, save=self.saves + other.saves)

    def to_json(self) -> dict[str, Any]:
        """Return regex and save configs as plain JSON types."""
        return {"regex": self.regex, "save": [save.to_json() for save in self.saves]}

    @classmethod
    def from_json(cls, name: str, document: Mapping[str, Any]) -> Self:
        """Build it from a table.

        Args:
            name: its name.
            document: ``regex``, and either ``save``, a list of tables of `SaveConfig`'s
                attributes, or those attributes themselves.

        Raises:
            ConfigError: an unknown key, or a value that is not right; the message names it.
        """
        if not isinstance(document, Mapping):
            raise ConfigError(f"{name} = {document!r}: must be a table")
        rest = {key: value for key, value in document.items() if key != "regex"}
        tables = rest.pop("save") if "save" in rest else [rest]
        if "save" in document and rest:
            raise ConfigError(f"{name}.{next(iter(rest))}: stands beside save; put it inside")
        if not isinstance(tables, list) or not all(isinstance(one, Mapping) for one in tables):
            raise ConfigError(f"{name}.save = {tables!r}: must be a list of tables")
        try:
            saves = tuple(SaveConfig.from_json(table) for table in tables)
        except ConfigError as error:
            raise ConfigError(f"{name}.{error}") from error
        return cls(name, document.get("regex"), saves)


def check_collection_name(collection: Collection) -> None:
    """Check that a collection can hold anything.

    Raises:
        ConfigError: it is neither built in nor has it a regex, or its name is no name.
    """
    name = collection.name
    if not name or "/" in name:
        raise ConfigError(f"{name!r} is no name for a collection: it must be a word without '/'")
    if name not in BUILT_IN and collection.regex is None:
        hint = did_you_mean(name, BUILT_IN) or f"; built in are {', '.join(BUILT_IN)}"
        raise ConfigError(f"{name}: no such collection, and no regex to make it one{hint}")


def _ordered(name: str, save: object) -> tuple[SaveConfig, ...]:
    """Return save configs without duplicates, in an order that does not depend on the asker's."""
    saves = save if isinstance(save, (tuple, list)) else (save,)
    for one in saves:
        if not isinstance(one, SaveConfig):
            raise ConfigError(f"{name or 'collection'}: save = {one!r} is not a SaveConfig")
    return tuple(sorted(set(saves), key=lambda one: json.dumps(one.to_json())))
