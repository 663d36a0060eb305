"""One hyperparameter of a search space: its range or choices, and its condition."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from vinedresser.errors import ConfigError, did_you_mean

__all__ = ["Choice", "Dimension", "Suggester", "parse_dimension"]

Choice = bool | int | float | str

_KEYS = ("log", "float", "int", "values", "step", "when", "grid")
# Steps by which a number may miss a multiple of the step because of its rounding.
_ROUNDING = 1e-6


class Suggester(Protocol):
    """Proposes values; implemented by Optuna's trials."""

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float:
        """Propose a number in [low, high]."""

    def suggest_int(
        self, name: str, low: int, high: int, *, step: int = 1, log: bool = False
    ) -> int:
        """Propose an integer in [low, high]."""

    def suggest_categorical(self, name: str, choices: tuple[Choice, ...]) -> Any:
        """Propose one of the choices."""


@dataclass(frozen=True)
class Dimension:
    """One hyperparameter.

    Attributes:
        name: name of the hyperparameter, as the trial's command takes it.
        kind: a real number, an integer, or a choice.
        low: smallest value of a number.
        high: largest value of a number.
        log: numbers are uniform on a logarithmic scale.
        step: numbers are low + k * step; 0: any number.
        choices: values of a choice; empty for numbers; a list of values as its JSON.
        lists: those of the choices that stand for a list.
        grid: number of values that a grid takes from the range; 0: not given.
        when: condition: the other hyperparameters, each with the values for which this one exists.
    """

    name: str
    kind: Literal["float", "int", "choice"]
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    step: float = 0.0
    choices: tuple[Choice, ...] = ()
    lists: frozenset[str] = frozenset()
    grid: int = 0
    when: Mapping[str, tuple[Choice, ...]] = field(default_factory=dict)

    def applies(self, chosen: Mapping[str, Choice]) -> bool:
        """Return whether its condition is met by the chosen values of other hyperparameters."""
        return all(
            name in chosen and _among(chosen[name], values) for name, values in self.when.items()
        )

    def suggest(self, suggester: Suggester) -> Choice:
        """Return a proposed value."""
        if self.kind == "choice":
            value: Choice = suggester.suggest_categorical(self.name, self.choices)
            return value
        if self.kind == "int":
            low, high, step = int(self.low), int(self.high), int(self.step) or 1
            return suggester.suggest_int(self.name, low, high, step=step, log=self.log)
        step_or_none = self.step or None
        return suggester.suggest_float(
            self.name, self.low, self.high, step=step_or_none, log=self.log
        )

    def decoded(self, value: Choice) -> Choice | list[Choice]:
        """Return a value as a trial is passed it: a list for the JSON of one of the choices."""
        if isinstance(value, str) and value in self.lists:
            found: list[Choice] = json.loads(value)
            return found
        return value

    def values(self) -> list[Choice]:
        """Return all values; for a range of real numbers, those of its grid.

        Raises:
            ConfigError: a range of real numbers without ``grid`` or ``step``.
        """
        if self.kind == "choice":
            return list(self.choices)
        if self.grid:
            return self._spaced()
        if self.kind == "int":
            return list(range(int(self.low), int(self.high) + 1, int(self.step) or 1))
        if self.step:
            count = math.floor((self.high - self.low) / self.step + _ROUNDING) + 1
            return [self.low + number * self.step for number in range(count)]
        raise ConfigError(
            f"{self.name}: a grid needs the number of values in the range: "
            f"{{ float = [{self.low:g}, {self.high:g}], grid = 5 }}"
        )

    def every(self) -> Iterator[Choice]:
        """Yield all values; for real numbers without steps, different ones without end."""
        if self.kind == "float" and not self.step:
            for depth in itertools.count(1):
                for odd in range(1, 2**depth, 2):
                    yield self.low + (self.high - self.low) * (odd / 2**depth)
        elif self.kind == "int":
            yield from range(int(self.low), int(self.high) + 1, int(self.step) or 1)
        else:
            yield from replace(self, grid=0).values()

    def widens(self, other: Dimension) -> bool:
        """Return whether it has all values of another one, and differs in its ends or choices only.

        Multiples of a step remain those.
        """
        if replace(self, low=0, high=0, choices=(), lists=frozenset(), grid=0) != replace(
            other, low=0, high=0, choices=(), lists=frozenset(), grid=0
        ):
            return False
        if self.kind == "choice":
            same = self.lists.intersection(other.choices) == other.lists
            return same and all(_among(one, self.choices) for one in other.choices)
        shift = (other.low - self.low) / (self.step or 1.0) if self.step else 0.0
        aligned = abs(shift - round(shift)) <= _ROUNDING
        return aligned and self.low <= other.low and other.high <= self.high

    def scaled(self, value: Choice, factor: float) -> Choice:
        """Return a number times a factor, or the value of the range that is nearest to that.

        If integers or steps are too coarse for the factor, it is the next one in its direction.
        """
        wanted = float(value) * factor
        step = self.step or float(self.kind == "int")
        if step:
            last = math.floor((self.high - self.low) / step + _ROUNDING)
            now, found = (round((one - self.low) / step) for one in (float(value), wanted))
            if found == now and wanted != float(value):
                found += 1 if wanted > float(value) else -1
            wanted = self.low + min(max(found, 0), last) * step
        wanted = min(max(wanted, self.low), self.high)
        return round(wanted) if self.kind == "int" else wanted

    def neighbour(self, value: Choice, side: int) -> Choice:
        """Return the choice before another one (side -1) or after it (1); at an end the inner one.

        A single choice has none, and is returned.
        """
        place = self.choices.index(value)
        if not 0 <= place + side < len(self.choices):
            side = -side
        return self.choices[min(max(place + side, 0), len(self.choices) - 1)]

    def key(self, value: Choice) -> Choice:
        """Return a value that is equal for equal values, though they were computed differently."""
        if self.kind == "choice":
            return f"{type(value).__name__} {value}"
        if self.kind == "int":
            return int(value)
        return round((float(value) - self.low) / self.step) if self.step else float(value)

    def check(self, value: object) -> Choice:
        """Return a value given by the user.

        Raises:
            ConfigError: the value is not in the range, between its steps, or not among the choices.
        """
        if self.kind == "choice":
            one = json.dumps(value) if isinstance(value, list) else value
            if isinstance(one, (bool, int, float, str)) and _among(one, self.choices):
                return one
            shown = ", ".join(repr(self.decoded(choice)) for choice in self.choices)
            raise ConfigError(f"must be one of {shown}, not {value!r}")
        wanted = int if self.kind == "int" else (int, float)
        right = isinstance(value, wanted) and not isinstance(value, bool)
        if not right or not self.low <= value <= self.high:  # type: ignore[operator]
            noun = "an integer" if self.kind == "int" else "a number"
            raise ConfigError(f"must be {noun} from {self.low:g} to {self.high:g}, not {value!r}")
        steps = (value - self.low) / self.step if self.step else 0.0  # type: ignore[operator]
        if abs(steps - round(steps)) > _ROUNDING:
            raise ConfigError(
                f"must be {self.low:g} plus a multiple of the step {self.step:g}, not {value!r}"
            )
        return value  # type: ignore[return-value]

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON types, equal for equal dimensions."""
        when = {name: list(values) for name, values in sorted(self.when.items())}
        if self.kind == "choice":
            return {"values": [self.decoded(one) for one in self.choices], "when": when}
        return {self.kind: [self.low, self.high], "log": self.log, "step": self.step, "when": when}

    def _spaced(self) -> list[Choice]:
        """Return the values of the grid, in ascending order."""
        if self.grid == 1:
            return [self.low if self.kind == "float" else int(self.low)]
        low, high = (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.high)
        steps = [low + (high - low) * number / (self.grid - 1) for number in range(self.grid)]
        # The ends exactly, without the rounding of logarithms.
        inner = [math.exp(step) if self.log else step for step in steps[1:-1]]
        values = [self.low, *inner, self.high]
        if self.kind == "int":
            return list(dict.fromkeys(round(value) for value in values))
        return list(values)


def parse_dimension(name: str, entry: object, where: str) -> Dimension:
    """Read one entry of the table ``[space]``.

    Args:
        name: name of the hyperparameter.
        entry: a list of choices, or a table with ``log``, ``float``, ``int`` or ``values``.
        where: prefix of messages.

    Raises:
        ConfigError: the entry is invalid.
    """
    if isinstance(entry, list):
        return _chosen(name, entry, where)
    if not isinstance(entry, Mapping):
        raise ConfigError(
            f"{where}: must be a list of values or a table such as {{ log = [1e-4, 1.0] }}, not "
            f"{entry!r}; constants belong in run.parameters"
        )
    for key in entry:
        if key not in _KEYS:
            near = did_you_mean(str(key), _KEYS) or f"; the keys are {', '.join(_KEYS)}"
            raise ConfigError(f"{where}.{key}: no such key{near}")
    when = _when(entry.get("when", {}), f"{where}.when")
    ranges = [key for key in ("log", "float", "int") if isinstance(entry.get(key), list)]
    if "values" in entry and not ranges:
        return _chosen(name, entry["values"], where, when)
    if len(ranges) != 1 or "values" in entry:
        raise ConfigError(
            f"{where}: must have one of log, float and int with [low, high], or values with a list"
        )
    return _range(name, ranges[0], entry, when, where)


def _chosen(
    name: str, given: object, where: str, when: Mapping[str, tuple[Choice, ...]] | None = None
) -> Dimension:
    """Read a list of choices, some of which may be lists."""
    choices = _choices(given, where)
    assert isinstance(given, list), "has choices"
    lists = frozenset(json.dumps(one) for one in given if isinstance(one, list))
    return Dimension(name, "choice", choices=choices, lists=lists, when=when or {})


def _range(
    name: str,
    key: str,
    entry: Mapping[str, Any],
    when: Mapping[str, tuple[Choice, ...]],
    where: str,
) -> Dimension:
    """Read a range of numbers."""
    kind: Literal["float", "int"] = "int" if key == "int" else "float"
    low, high = _ends(entry[key], kind, f"{where}.{key}")
    log = key == "log" or entry.get("log", False)
    if not isinstance(log, bool):
        raise ConfigError(f"{where}.log: must be true, false, or [low, high], not {log!r}")
    if log and low <= 0:
        raise ConfigError(f"{where}.{key}: a logarithmic range must start above 0, not at {low:g}")
    step = _count(entry, "step", kind, where)
    if step and log:
        raise ConfigError(f"{where}.step: a logarithmic range has no steps; remove one of the two")
    grid = int(_count(entry, "grid", "int", where))
    return Dimension(name, kind, low, high, log, step, grid=grid, when=when)


def _ends(given: list[Any], kind: str, where: str) -> tuple[float, float]:
    """Return the two ends of a range."""
    wanted = (int,) if kind == "int" else (int, float)
    right = len(given) == 2 and all(
        isinstance(one, wanted) and not isinstance(one, bool) and math.isfinite(one)
        for one in given
    )
    if not right:
        noun = "integers" if kind == "int" else "numbers"
        raise ConfigError(f"{where}: must be two {noun}, [low, high], not {given!r}")
    low, high = given
    if not low < high:
        raise ConfigError(f"{where}: {low:g} must be below {high:g}: [low, high]")
    return low, high


def _count(entry: Mapping[str, Any], key: str, kind: str, where: str) -> float:
    """Return a positive number of the table; 0 if there is none."""
    value = entry.get(key, 0)
    wanted = (int,) if kind == "int" else (int, float)
    if isinstance(value, bool) or not isinstance(value, wanted) or (key in entry and value <= 0):
        noun = "an integer" if kind == "int" else "a number"
        raise ConfigError(f"{where}.{key}: must be {noun} above 0, not {value!r}")
    return value


def _choices(given: object, where: str) -> tuple[Choice, ...]:
    """Return a list of choices."""
    if not isinstance(given, list) or not given:
        raise ConfigError(f"{where}: must be a list of at least one value, not {given!r}")
    for one in given:
        # A list is a value of the script's that has several, such as the sizes of layers.
        parts = one if isinstance(one, list) and one else [one]
        if not all(isinstance(part, (bool, int, float, str)) for part in parts):
            raise ConfigError(
                f"{where}: must contain numbers, strings, true, false, or lists of these, "
                f"not {one!r}"
            )
    found = [json.dumps(one) if isinstance(one, list) else one for one in given]
    if len({(type(one), one) for one in found}) < len(found):
        raise ConfigError(f"{where}: {given!r} has a duplicate value")
    return tuple(found)


def _when(given: object, where: str) -> dict[str, tuple[Choice, ...]]:
    """Return the condition of a hyperparameter."""
    if not isinstance(given, Mapping):
        raise ConfigError(f'{where}: must be a table such as {{ optimizer = "sgd" }}')
    return {
        str(name): _choices(values if isinstance(values, list) else [values], f"{where}.{name}")
        for name, values in given.items()
    }


def _among(value: Choice, values: tuple[Choice, ...]) -> bool:
    """Return whether a value is among others, with True different from 1."""
    return any(value == one and isinstance(value, bool) is isinstance(one, bool) for one in values)
