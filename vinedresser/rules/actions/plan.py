"""Which actions follow which finding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

from vinedresser.errors import ConfigError, did_you_mean
from vinedresser.rules.actions.settings import (
    AdjustSettings,
    CommandSettings,
    EmailSettings,
    NotifySettings,
    SnapshotSettings,
)
from vinedresser.rules.registry import find_rule
from vinedresser.store.finding import Finding

__all__ = ["ACTIONS", "ActionPlan"]

T = TypeVar("T")

# In the order in which they are taken.
ACTIONS = ("tag", "snapshot", "checkpoint", "adjust", "stop", "notify", "email", "command")

# Of a severity, the key of its default actions.
_BY_SEVERITY = {"stop": "on_stop", "warning": "on_warning", "info": "on_info"}
_SETTINGS: dict[str, type[Any]] = {
    "snapshot": SnapshotSettings,
    "adjust": AdjustSettings,
    "notify": NotifySettings,
    "email": EmailSettings,
    "command": CommandSettings,
}
# What changes a training.
_CHANGING = frozenset({"stop", "adjust"})
# Without settings of their own, these know what to do.
_OPTIONAL = frozenset({"snapshot"})


@dataclass(frozen=True)
class ActionPlan:
    """Which actions follow which finding, and their settings.

    Attributes:
        by_severity: of a severity, what follows unless the rule says otherwise.
        by_rule: of a rule's name, what follows.
        settings: of an action's name, its settings, where it has any.
    """

    by_severity: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: {"stop": ("stop",)})
    by_rule: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_tables(
        cls,
        actions: object,
        rules: Mapping[str, Mapping[str, Any]],
        *,
        where: str = "actions",
        where_rules: str = "rules",
    ) -> Self:
        """Make a plan from a configuration file.

        Args:
            actions: the table ``[actions]``.
            rules: by a rule's name its table, perhaps with a list ``actions``.
            where: what to begin a message about the first with, such as ``a.toml: actions``.
            where_rules: and about the second.

        Raises:
            ConfigError: names the key that is wrong.
        """
        if not isinstance(actions, Mapping):
            raise ConfigError(f"{where}: must be a table, not {actions!r}")
        known = (*_BY_SEVERITY.values(), *_SETTINGS)
        for key in actions:
            if key not in known:
                near = did_you_mean(str(key), known) or f"; the keys are {', '.join(known)}"
                raise ConfigError(f"{where}.{key}: no such key{near}")
        settings = {
            name: _built(kind, actions[name], f"{where}.{name}")
            for name, kind in _SETTINGS.items()
            if name in actions
        }
        by_severity = dict(cls().by_severity)
        for severity, key in _BY_SEVERITY.items():
            if key in actions:
                by_severity[severity] = _names(actions[key], settings, f"{where}.{key}")
        by_rule = {}
        for name, table in rules.items():
            if "actions" in table:
                rule = find_rule(name, where=where_rules).name
                by_rule[rule] = _names(table["actions"], settings, f"{where_rules}.{name}.actions")
        return cls(by_severity, by_rule, settings)

    def of(self, finding: Finding) -> tuple[str, ...]:
        """Return the names of the actions that follow a finding, in their order.

        What is found wrong with a rule itself, which has no figure, is told but changes no run.
        """
        default = self.by_severity.get(finding.severity, ())
        if not finding.statistic:
            return tuple(name for name in default if name not in _CHANGING)
        return self.by_rule.get(finding.rule, default)


def _names(given: object, settings: Mapping[str, Any], where: str) -> tuple[str, ...]:
    """Return names of actions, checked and in their order."""
    if not isinstance(given, list | tuple):
        raise ConfigError(f"{where}: must be a list of actions, not {given!r}")
    for name in given:
        if name not in ACTIONS:
            near = did_you_mean(str(name), ACTIONS) or f"; there are {', '.join(ACTIONS)}"
            raise ConfigError(f"{where}: no such action {name!r}{near}")
        if name in _SETTINGS and name not in settings and name not in _OPTIONAL:
            raise ConfigError(f"{where}: {name} needs settings of its own: [actions.{name}]")
    return tuple(name for name in ACTIONS if name in given)


def _built(kind: type[T], table: object, where: str) -> T:
    # It brings pydantic, which a judge without actions has no use for.
    from vinedresser.infra.configuration import build

    return build(kind, table, where)
