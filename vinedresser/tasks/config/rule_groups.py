"""`[rules]` into one table per rule group."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vinedresser.errors import ConfigError
from vinedresser.rules.custom_rules import absolute_reference
from vinedresser.rules.presets import preset_table

__all__ = ["grouped"]


def grouped(table: object, *, where: str, base: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """Return, for each rule group, the rules in it with their settings.

    Each group is judged by a process of its own; rules are in the group "default" unless they say
    otherwise, so that one pass over the data serves all of them.

    Args:
        table: the file's ``[rules]``: ``preset``, and per rule a table, which goes on top of the
            preset's, or ``false`` to omit it.
        where: file and key, to begin a message with.
        base: what the paths of rules of one's own are relative to; they become absolute.

    Raises:
        ConfigError: names the key that is wrong.
    """
    if not isinstance(table, Mapping):
        raise ConfigError(f"{where}: must be a table, not {table!r}")
    settings = dict(table)
    chosen = preset_table(settings.pop("preset", "default"), where=f"{where}.preset")
    for name, entry in settings.items():
        if entry is False:
            chosen.pop(name, None)
        elif isinstance(entry, Mapping):
            full = absolute_reference(name, base)
            chosen[full] = {**chosen.get(full, {}), **entry}
        else:
            raise ConfigError(f"{where}.{name}: must be a table or false, not {entry!r}")
    groups: dict[str, dict[str, dict[str, Any]]] = {}
    for name, entry in chosen.items():
        group = entry.pop("group", "default")
        if not isinstance(group, str) or not group.isidentifier():
            raise ConfigError(f"{where}.{name}.group: must be a plain word, not {group!r}")
        groups.setdefault(group, {})[name] = entry
    return groups
