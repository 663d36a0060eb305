"""What the user states in an experiment file: ``[expect]`` and ``[reference]``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vinedresser.errors import ConfigError
from vinedresser.infra.configuration import build
from vinedresser.objects.location import is_remote
from vinedresser.queries.expectation import Expectation
from vinedresser.rules.stated.good_runs import GoodRuns
from vinedresser.tasks.config.references import AUTO

__all__ = [
    "ExpectTable",
    "ReferenceTable",
    "add_stated",
    "expected",
    "references_in",
    "with_good_runs",
]


@dataclass(frozen=True)
class ExpectTable:
    """What is expected of each training.

    Attributes:
        lines: expectations, such as ``"accuracy > 0.9 by epoch 3, else stop"``.
    """

    lines: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class ReferenceTable:
    """The good runs that each training is compared with.

    Attributes:
        run: directory or URL of a good run, a list of them, or ``"auto"``: up to five of the last
            runs of the same script in the store that ended well.
    """

    run: str | list[str] = field(default_factory=list)


def expected(table: object, where: str) -> tuple[str, ...]:
    """Return the lines of ``[expect]``.

    Raises:
        ConfigError: the table is invalid, or a line is not an expectation.
    """
    lines = build(ExpectTable, table, where).lines
    for number, line in enumerate(lines, 1):
        try:
            Expectation.parse(line)
        except ConfigError as error:
            raise ConfigError(f"{where}.lines: line {number}: {error}") from error
    return tuple(lines)


def references_in(table: object, base: Path, where: str) -> tuple[str, ...]:
    """Return the runs of ``[reference]`` as absolute locations, or "auto".

    Raises:
        ConfigError: the table is invalid.
    """
    given = build(ReferenceTable, table, where).run
    runs = [given] if isinstance(given, str) else given
    if AUTO in runs and len(runs) > 1:
        raise ConfigError(f'{where}.run: "{AUTO}" stands alone; leave out the runs or it')
    return tuple(run if run == AUTO or is_remote(run) else str(base / run) for run in runs)


def add_stated(
    groups: dict[str, dict[str, dict[str, Any]]], *, expects: bool, compares: bool
) -> None:
    """Add the rules that judge by what the user states to groups of rules that lack them.

    Args:
        groups: tables of the rules by group; changed.
        expects: whether there are expectations.
        compares: whether there are good runs to compare with.
    """
    for name, wanted in (("expectation", expects), ("reference", compares)):
        if wanted and not any(name in rules for rules in groups.values()):
            groups.setdefault("default", {})[name] = {}


def with_good_runs(
    rules: Mapping[str, Mapping[str, Any]], good: GoodRuns | None
) -> Mapping[str, Mapping[str, Any]]:
    """Return tables of rules, of which that of ``reference`` has the good runs, if there are any.

    Args:
        rules: tables of the rules by name.
        good: the good runs; None: there are none.
    """
    if good is None or "reference" not in rules:
        return rules
    return {**rules, "reference": {**rules["reference"], "good": good.to_json()}}
