"""The plan of which actions follow which finding."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

from vinedresser.errors import ConfigError, did_you_mean
from vinedresser.quantities import parse_time
from vinedresser.rules.actions.message import check_template
from vinedresser.rules.actions.settings import (
    AdjustSettings,
    BoostSettings,
    CommandSettings,
    EmailSettings,
    NotifySettings,
    SnapshotSettings,
)
from vinedresser.rules.registry import find_rules
from vinedresser.store.finding import CAUGHT_UP, Finding

__all__ = ["ACTIONS", "MESSAGES", "ActionPlan"]

T = TypeVar("T")

# In the order of execution.
ACTIONS = ("tag", "snapshot", "checkpoint", "adjust", "boost", "stop", "notify", "email", "command")
# Those that tell people and programs; nothing waits for them.
MESSAGES = frozenset({"notify", "email", "command"})
# Seconds between two messages about the same root cause, and their key.
_COOLDOWN, _COOLDOWN_KEY = 3600.0, "cooldown"
# Key of the user's own text of messages.
_TEMPLATE_KEY = "template"

# By severity the key of its default actions.
_BY_SEVERITY = {"stop": "on_stop", "warning": "on_warning", "info": "on_info"}
_SETTINGS: dict[str, type[Any]] = {
    "snapshot": SnapshotSettings,
    "adjust": AdjustSettings,
    "boost": BoostSettings,
    "notify": NotifySettings,
    "email": EmailSettings,
    "command": CommandSettings,
}
# Actions that change a training.
_CHANGING = frozenset({"stop", "adjust", "boost"})
# Actions that need no settings.
_OPTIONAL = frozenset({"snapshot", "boost"})


@dataclass(frozen=True)
class ActionPlan:
    """Which actions follow which finding, and their settings.

    Attributes:
        by_severity: by severity the default actions.
        by_rule: by rule name the actions that replace the default.
        settings: by action name its settings, if it has any.
        cooldown: seconds between two messages about the same root cause of a run.
        template: text of messages about findings, with placeholders; "": the usual one.
    """

    by_severity: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: {"stop": ("stop",)})
    by_rule: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    cooldown: float = _COOLDOWN
    template: str = ""

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
            rules: by rule name its table, with an optional list ``actions``.
            where: prefix of error messages about ``actions``, such as ``a.toml: actions``.
            where_rules: prefix of error messages about ``rules``.

        Raises:
            ConfigError: a key or value is invalid.
        """
        if not isinstance(actions, Mapping):
            raise ConfigError(f"{where}: must be a table, not {actions!r}")
        known = (*_BY_SEVERITY.values(), _COOLDOWN_KEY, _TEMPLATE_KEY, *_SETTINGS)
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
        by_rule: dict[str, tuple[str, ...]] = {}
        for name, table in rules.items():
            if "actions" in table:
                names = _names(table["actions"], settings, f"{where_rules}.{name}.actions")
                kinds = find_rules(name, where=where_rules)
                by_rule |= dict.fromkeys((kind.name for kind in kinds), names)
        cooldown = _seconds(actions.get(_COOLDOWN_KEY, _COOLDOWN), f"{where}.{_COOLDOWN_KEY}")
        template = _template(actions.get(_TEMPLATE_KEY, ""), f"{where}.{_TEMPLATE_KEY}")
        return cls(by_severity, by_rule, settings, cooldown, template)

    @property
    def messages(self) -> list[str]:
        """Names of the actions by which messages are sent, in the order of execution."""
        wanted = {
            name for names in (*self.by_severity.values(), *self.by_rule.values()) for name in names
        }
        return [name for name in ACTIONS if name in MESSAGES and name in wanted]

    def of(self, finding: Finding) -> tuple[str, ...]:
        """Return the names of the actions that follow a finding, in the order of execution.

        Findings about a rule itself never change a run. A finding that
        classes have caught up takes back boosts; of the rule's own actions no other one follows.
        """
        default = self.by_severity.get(finding.severity, ())
        if finding.is_about_rule:
            return tuple(name for name in default if name not in _CHANGING)
        if CAUGHT_UP in finding.evidence:
            boosted = "boost" in self.by_rule.get(finding.rule, ())
            wanted = (*default, "boost") if boosted else default
            return tuple(name for name in ACTIONS if name in wanted)
        return self.by_rule.get(finding.rule, default)


def _names(given: object, settings: Mapping[str, Any], where: str) -> tuple[str, ...]:
    """Check names of actions, and return them in the order of execution."""
    if not isinstance(given, list | tuple):
        raise ConfigError(f"{where}: must be a list of actions, not {given!r}")
    for name in given:
        if name not in ACTIONS:
            near = did_you_mean(str(name), ACTIONS) or f"; the actions are {', '.join(ACTIONS)}"
            raise ConfigError(f"{where}: no such action {name!r}{near}")
        if name in _SETTINGS and name not in settings and name not in _OPTIONAL:
            raise ConfigError(f"{where}: {name} needs settings: [actions.{name}]")
    return tuple(name for name in ACTIONS if name in given)


def _seconds(given: object, where: str) -> float:
    """Return a duration of at least 0 seconds, given as a number or as text."""
    if isinstance(given, str):
        try:
            return parse_time(given)
        except ValueError as error:
            raise ConfigError(f"{where}: {error}") from error
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given < math.inf:
        raise ConfigError(f'{where}: must be a time such as "30 min", or seconds, not {given!r}')
    return float(given)


def _template(given: object, where: str) -> str:
    """Return the text of messages about findings."""
    if not isinstance(given, str):
        raise ConfigError(f"{where}: must be a text, such as '$run: $seen', not {given!r}")
    try:
        check_template(given)
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from error
    return given


def _built(kind: type[T], table: object, where: str) -> T:
    # It imports pydantic, which a judge without actions does not need.
    from vinedresser.infra.configuration import build

    return build(kind, table, where)
