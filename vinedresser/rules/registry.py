"""Rules by name, and rules from the tables of a configuration file."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args, get_type_hints

from vinedresser.errors import ConfigError, did_you_mean
from vinedresser.rules.applicability import FRAMEWORKS
from vinedresser.rules.base import Rule
from vinedresser.rules.custom_rules import (
    absolute_reference,
    installed_rules,
    is_reference,
    load_rule,
)
from vinedresser.store.finding import Severity

__all__ = ["RESERVED", "RULES", "describe", "find_rules", "known_rules", "rules_from_table"]

# Subpackages with rules. Every rule class of their modules is a built-in rule.
_FAMILIES = (
    "activations",
    "contracts",
    "data",
    "losses",
    "optimisation",
    "ranks",
    "stated",
    "system",
    "tensors",
    "trees",
)


def _built_in() -> dict[str, type[Rule]]:
    """Return the built-in rules by name, in their `Rule.position`."""
    found: list[type[Rule]] = []
    for family in _FAMILIES:
        package = importlib.import_module(f"vinedresser.rules.{family}")
        for _, name, _ in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            members = vars(importlib.import_module(name)).values()
            found += [kind for kind in members if isinstance(kind, type) and _is_rule(kind, name)]
    return {rule.name: rule for rule in sorted(found, key=lambda rule: rule.position)}


def _is_rule(kind: type, module: str) -> bool:
    """Return whether a class is a complete rule that the module defines."""
    return issubclass(kind, Rule) and kind.__module__ == module and not inspect.isabstract(kind)


# In the order of evaluation: if several fire at one step, the first ends the run.
RULES: dict[str, type[Rule]] = _built_in()
# The rules that have replaced others, by the names of those.
_REPLACED: dict[str, list[type[Rule]]] = {}
for _rule in RULES.values():
    for _former in {*_rule.former_names, *_rule.predecessors} - {_rule.name}:
        _REPLACED.setdefault(_former, []).append(_rule)

# Commands that do what rules of smdebug did, by their names.
_COMMANDS = {
    "similar_across_runs": '"vinedresser compare RUN OTHER" names the first step at which two runs '
    "differ"
}

# Keys of each rule's table that are not parameters.
RESERVED = ("severity", "group", "actions")

_SEVERITIES: tuple[str, ...] = get_args(Severity)


def known_rules() -> dict[str, type[Rule]]:
    """Return all named rules: the built-in ones, then those of installed packages.

    Raises:
        ConfigError: a package's rule cannot be loaded.
    """
    return {**RULES, **{name: one for name, one in installed_rules().items() if name not in RULES}}


def rules_from_table(
    table: Mapping[str, Mapping[str, Any]], *, where: str = "rules", base: Path | None = None
) -> list[Rule]:
    """Make rules from their tables.

    Args:
        table: by name of a rule, or ``path/to/file.py:Name``, its parameters and ``severity``. The
            keys ``group`` and ``actions`` are allowed and ignored here. A later table with a former
            name of a rule overrides the parameters in that of its name, not the severity.
        where: prefix of error messages, such as ``experiment.toml: rules``.
        base: directory that paths are relative to; None: the working directory.

    Returns:
        Built-in rules in the order of `RULES`, then the others in the order of the table.

    Raises:
        ConfigError: a rule or parameter is unknown, or a value is invalid.
    """
    found: dict[str, type[Rule]] = {}
    chosen: dict[str, dict[str, Any]] = {}
    for name, settings in table.items():
        rules = find_rules(name, where=where, base=base)
        if not isinstance(settings, Mapping):
            raise ConfigError(f"{where}.{name}: must be a table of parameters, not {settings!r}")
        for rule in rules:
            current = rule.name if rule is RULES.get(rule.name) else name
            given = dict(settings)
            if current != name and current in found:
                # The severity was meant for what the former rule found.
                given.pop("severity", None)
            found[current] = rule
            chosen[current] = {**chosen.get(current, {}), **given}
    order = list(RULES)
    names = sorted(found, key=lambda name: order.index(name) if name in RULES else len(order))
    return [_make(found[name], chosen[name], f"{where}.{name}") for name in names]


def find_rules(name: str, *, where: str = "rules", base: Path | None = None) -> list[type[Rule]]:
    """Return the rules of a name: one, or those that have replaced a rule of this name.

    Args:
        name: name of the rule, or ``path/to/file.py:Name``.
        where: prefix of error messages.
        base: directory that the path is relative to; None: the working directory.

    Raises:
        ConfigError: the rule does not exist, or its file fails.
    """
    if is_reference(name):
        return [load_rule(absolute_reference(name, base or Path.cwd()), f"{where}.{name}")]
    if name in RULES:
        # Searching the installed packages takes a hundred times as long.
        return [RULES[name]]
    known = known_rules()
    if name in known:
        return [known[name]]
    if name in _REPLACED:
        return _REPLACED[name]
    if name in _COMMANDS:
        raise ConfigError(f"{where}.{name}: no such rule; {_COMMANDS[name]}")
    near = did_you_mean(name, known)
    raise ConfigError(
        f'{where}.{name}: no such rule{near} ("vinedresser rules list" shows all; a custom rule '
        "is path/to/file.py:Name)"
    )


def describe(kind: type[Rule]) -> str:
    """Return a description of a rule and its parameters, for a terminal."""
    parameters = ", ".join(
        name if entry.default is entry.empty else f"{name} = {entry.default!r}"
        for name, entry in inspect.signature(kind).parameters.items()
    )
    text = inspect.getdoc(kind) or "(not documented)"
    fault = f"   fault {kind.fault}" if kind.fault else ""
    reasons = zip(FRAMEWORKS, kind.inapplicable, strict=True)
    limits = [f"Not for {name}: {why}." for name, why in reasons if why]
    text = "\n".join((text, "", *limits) if limits else (text,))
    return f"{kind.name}({parameters})   severity {kind.severity}{fault}\n\n{text}\n"


def _make(kind: type[Rule], settings: Mapping[str, Any], where: str) -> Rule:
    parameters = inspect.signature(kind).parameters
    hints = get_type_hints(kind.__init__)
    given = {key: value for key, value in settings.items() if key not in RESERVED}
    for key, value in given.items():
        if key not in parameters:
            known = (*parameters, *RESERVED)
            near = did_you_mean(key, known) or f"; the parameters are {', '.join(known)}"
            raise ConfigError(f"{where}.{key}: no such parameter{near}")
        _check_type(value, hints.get(key), f"{where}.{key}")
    for key, entry in parameters.items():
        if entry.default is entry.empty and key not in given:
            raise ConfigError(f"{where}.{key}: is missing")
    try:
        rule = kind(**given)
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from error
    severity = settings.get("severity", kind.severity)
    if severity not in _SEVERITIES:
        raise ConfigError(
            f"{where}.severity: must be one of {', '.join(_SEVERITIES)}, not {severity!r}"
        )
    rule.severity = severity
    return rule


def _check_type(value: object, wanted: object, where: str) -> None:
    """Check a parameter of a plain type; the constructor checks all others."""
    words = {int: "an integer", float: "a number", str: "a string", bool: "true or false"}
    if not isinstance(wanted, type) or wanted not in words:
        return
    right = isinstance(value, (int, float) if wanted is float else wanted)
    # True is an integer in Python, but not in configuration files.
    if right and isinstance(value, bool) is (wanted is bool):
        return
    raise ConfigError(f"{where}: must be {words[wanted]}, not {value!r}")
