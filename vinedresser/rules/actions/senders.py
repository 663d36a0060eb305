"""The actions that send messages, by their names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vinedresser.rules.actions.base import Action
from vinedresser.rules.actions.block import BlockAction
from vinedresser.rules.actions.command import CommandAction
from vinedresser.rules.actions.mail import EmailAction
from vinedresser.rules.actions.notify import NotifyAction

_KINDS: dict[str, type[Any]] = {
    "notify": NotifyAction,
    "email": EmailAction,
    "command": CommandAction,
}


def senders(settings: Mapping[str, Any]) -> dict[str, Action]:
    """Return the actions that have settings, by name; see `ActionPlan.settings`."""
    found = {name: kind(settings[name]) for name, kind in _KINDS.items() if name in settings}
    if "notify" in found and settings["notify"].block:
        found["notify"] = BlockAction(settings["notify"])
    return found
