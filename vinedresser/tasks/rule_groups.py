"""`[rules]` into one table per rule group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vinedresser.errors import ConfigError
from vinedresser.rules.registry import RULES

__all__ = ["grouped"]

_PRESETS: dict[str, tuple[str, ...]] = {"default": tuple(RULES), "none": ()}


def grouped(table: object, *, where: str) -> dict[str, dict[str, dict[str, Any]]]:
    """Return, for each rule group, the rules in it with their settings.

    Each group is judged by a process of its own; rules are in the group "default" unless they say
    otherwise, so that one pass over the data serves all of them.

    Args:
        table: the file's ``[rules]``: ``preset``, and per rule a table, or ``false`` to omit it.
        where: file and key, to begin a message with.

    Raises:
        ConfigError: names the key that is wrong.
    """
    if not isinstance(table, Mapping):
        raise ConfigError(f"{where}: must be a table, not {table!r}")
    settings = dict(table)
    preset = settings.pop("preset", "default")
    if preset not in _PRESETS:
        raise ConfigError(
            f"{where}.preset: no such preset {preset!r}; there are {', '.join(_PRESETS)}"
        )
    chosen: dict[str, dict[str, Any]] = {name: {} for name in _PRESETS[preset]}
    for name, entry in settings.items():
        if entry is False:
            chosen.pop(name, None)
        elif isinstance(entry, Mapping):
            chosen[name] = dict(entry)
        else:
            raise ConfigError(f"{where}.{name}: must be a table or false, not {entry!r}")
    groups: dict[str, dict[str, dict[str, Any]]] = {}
    for name, entry in chosen.items():
        group = entry.pop("group", "default")
        if not isinstance(group, str) or not group.isidentifier():
            raise ConfigError(f"{where}.{name}.group: must be a plain word, not {group!r}")
        groups.setdefault(group, {})[name] = entry
    return groups
