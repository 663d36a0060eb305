"""Custom rules: from a user's file or an installed package."""

from __future__ import annotations

import importlib.util
import inspect
import re
import sys
import traceback
from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from vinedresser.errors import ConfigError, did_you_mean
from vinedresser.rules.base import Rule
from vinedresser.rules.shield import shielded

__all__ = [
    "ENTRY_POINTS",
    "absolute_reference",
    "installed_rules",
    "is_reference",
    "load_rule",
    "references_in",
]

# Entry point group in which packages register rules by name.
ENTRY_POINTS = "vinedresser.rules"

_REFERENCE = re.compile(r"(?P<path>.+\.py):(?P<name>\w+)")


def is_reference(name: str) -> bool:
    """Return whether a name is a reference to a class in a file, ``path/to/file.py:Name``."""
    return _REFERENCE.fullmatch(name) is not None


def absolute_reference(name: str, base: Path) -> str:
    """Return the name of a rule, with the path of a reference made absolute.

    Args:
        name: name of a rule, or ``path/to/file.py:Name``.
        base: directory that relative paths are relative to.
    """
    found = _REFERENCE.fullmatch(name)
    if found is None:
        return name
    return f"{(base / Path(found['path']).expanduser()).resolve()}:{found['name']}"


def references_in(path: Path, where: str) -> list[str]:
    """Run a file once, and return ``path/to/file.py:Name`` for each rule that it defines.

    Raises:
        ConfigError: the file is missing, fails, or defines no rule.
    """
    members = _members(path, where)
    own = [name for name, rule in _rules(members).items() if rule.__module__ == members["__name__"]]
    if not own:
        raise ConfigError(f"{where}: {path}: defines no rule; a rule is a subclass of Rule")
    return [f"{path}:{name}" for name in own]


def load_rule(reference: str, where: str) -> type[Rule]:
    """Run a file once, and return a rule that it defines.

    Args:
        reference: ``path/to/file.py:Name``.
        where: prefix of error messages.

    Raises:
        ConfigError: the file or class is missing, the class is not a rule, or the file fails.
    """
    found = _REFERENCE.fullmatch(reference)
    if found is None:
        raise ConfigError(f"{where}: {reference!r}: must be path/to/file.py:Name")
    path, name = Path(found["path"]), found["name"]
    members = _members(path, where)
    rules = _rules(members)
    if name in rules:
        return rules[name]
    if name in members:
        raise ConfigError(
            f"{where}: {path}: {name} is not a rule; a rule is a subclass of Rule with `update`"
        )
    own = [one for one, value in rules.items() if value.__module__ == members["__name__"]]
    hint = did_you_mean(name, own) or (
        f"; it defines {', '.join(own)}" if own else "; it defines no rules"
    )
    raise ConfigError(f"{where}: {path}: does not define {name}{hint}")


def _members(path: Path, where: str) -> dict[str, Any]:
    """Run a file once, and return its module's namespace."""
    full = path.expanduser().resolve()
    if not full.is_file():
        raise ConfigError(f"{where}: {path}: no such file")

    def refuse(error: Exception) -> NoReturn:
        raise ConfigError(
            f"{where}: {path}{_line_in(error, full)}: {type(error).__name__}: {error}"
        ) from error

    return vars(shielded(lambda: _module(full), refuse))


def _rules(members: Mapping[str, Any]) -> dict[str, type[Rule]]:
    return {
        name: value
        for name, value in members.items()
        if isinstance(value, type) and issubclass(value, Rule) and not inspect.isabstract(value)
    }


def installed_rules() -> dict[str, type[Rule]]:
    """Return the rules of installed packages by name.

    Raises:
        ConfigError: one cannot be loaded, or is not a rule.
    """
    return {name: _installed(name) for name in sorted(entry_points(group=ENTRY_POINTS).names)}


@cache
def _installed(name: str) -> type[Rule]:
    (point, *_) = entry_points(group=ENTRY_POINTS, name=name)

    def refuse(error: Exception) -> NoReturn:
        raise ConfigError(
            f"rules.{name}: the package {point.dist.name if point.dist else point.value} failed: "
            f"{type(error).__name__}: {error}"
        ) from error

    rule = shielded(point.load, refuse)
    if not (isinstance(rule, type) and issubclass(rule, Rule)):
        raise ConfigError(
            f"rules.{name}: {point.value} is not a rule; a rule is a subclass of Rule"
        )
    return rule


@cache
def _module(path: Path) -> ModuleType:
    """Import a file as a module with a unique name."""
    name = f"vinedresser_custom_rules.{re.sub(r'[^0-9a-zA-Z]', '_', str(path))}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None, "the name ends with .py"
    assert spec.loader is not None, "it is a source file"
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look up their module.
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _line_in(error: Exception, path: Path) -> str:
    """Return the line of a file that raised an exception, such as ":12"; "" if unknown."""
    if isinstance(error, SyntaxError):
        return f":{error.lineno}"
    line = ""
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename == str(path):
            line = f":{frame.lineno}"
    return line
