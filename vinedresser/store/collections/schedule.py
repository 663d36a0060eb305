"""Save schedules: when tensors are saved, and in what form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Self

from vinedresser.errors import ConfigError, did_you_mean
from vinedresser.store.reductions import parse_reduction
from vinedresser.store.step_record import MODES

__all__ = ["Predicate", "SaveConfig"]

# Returns whether to save at a step in a mode ("train", "eval", "predict").
Predicate = Callable[[int, str], bool | None]


@dataclass(frozen=True)
class SaveConfig:
    """When the tensors of a collection are saved, and in what form.

    Sequences may be given as lists; they are stored as tuples.

    Attributes:
        every: save at ``start`` and every ``every`` train steps after it; 0: only at the explicit
            ``steps``. Evaluations and predictions are rare, so each of them is saved.
        start: first step.
        stop: first step that is no longer saved; None: no end.
        steps: additional steps to save.
        modes: the modes in which it applies: "train", "eval", "predict".
        reductions: names of statistics to keep (`vinedresser.store.reductions`).
        tensor: keep the tensor itself; None: only if there are no reductions.
        rows: maximum number of rows to keep of a tensor, evenly strided along its first axis
            (`store.reductions.sampling`), so that all tensors with the same number of rows keep the
            same samples. Large rows are limited to 1 MiB in total; a larger row is not kept at all.
            Statistics cover all rows. None: all rows.
        when: additional condition, a predicate of step and mode; does not apply to explicit
            ``steps``. A string (in a run's record) names a predicate known only to the training; it
            selects no steps.
        elastic: train steps may be saved less often to keep a budget of time, as those that only
            rules need; not part of the JSON.

    Raises:
        ConfigError: a value is invalid; the message names it.
    """

    every: int = 100
    start: int = 0
    stop: int | None = None
    steps: tuple[int, ...] = ()
    modes: tuple[str, ...] = MODES
    reductions: tuple[str, ...] = ()
    tensor: bool | None = None
    rows: int | None = None
    when: Predicate | str | None = None
    elastic: bool = False

    def __post_init__(self) -> None:
        for key in ("every", "start", "stop"):
            value = getattr(self, key)
            if not (_is_step(value) or (key == "stop" and value is None)):
                raise ConfigError(f"{key} = {value!r}: must be an integer, at least 0")
        if self.stop is not None and self.stop <= self.start:
            raise ConfigError(f"stop = {self.stop}: must be greater than start = {self.start}")
        for key in ("steps", "modes", "reductions"):
            object.__setattr__(self, key, _as_tuple(key, getattr(self, key)))
        for step in self.steps:
            if not _is_step(step):
                raise ConfigError(f"steps: {step!r} is not an integer of at least 0")
        _check_words("modes", self.modes, MODES)
        if self.when is not None and not isinstance(self.when, str) and not callable(self.when):
            raise ConfigError(f"when = {self.when!r}: must be a function of step and mode")
        self._check_what()

    def _check_what(self) -> None:
        """Check the form in which tensors are kept."""
        for word in self.reductions:
            parse_reduction(word)
        if self.tensor is not None and not isinstance(self.tensor, bool):
            raise ConfigError(f"tensor = {self.tensor!r}: must be true or false")
        if self.rows is not None and (not _is_step(self.rows) or not self.rows):
            raise ConfigError(f"rows = {self.rows!r}: must be an integer, at least 1")

    @property
    def wants_tensor(self) -> bool:
        """Whether the tensor itself is kept."""
        return not self.reductions if self.tensor is None else self.tensor

    @property
    def schedule(self) -> tuple[Any, ...]:
        """Key of the schedule: save configs with equal keys are due at the same steps."""
        # By identity: equal predicates may return different results.
        when = id(self.when) if callable(self.when) else self.when
        return (self.every, self.start, self.stop, self.steps, self.modes, when, self.elastic)

    def due(self, step: int, mode: str, pace: int = 1) -> bool:
        """Return whether a step is saved.

        Args:
            step: number of completed optimizer steps.
            mode: "train", "eval" or "predict".
            pace: factor of the interval of train steps if the config is elastic.
        """
        if mode not in self.modes:
            return False
        if step in self.steps:
            return True
        if not self.every or step < self.start or (self.stop is not None and step >= self.stop):
            return False
        every = self.every * pace if self.elastic else self.every
        if mode == "train" and (step - self.start) % every:
            return False
        if self.when is None:
            return True
        return not isinstance(self.when, str) and bool(self.when(step, mode))

    def without_fingerprint(self) -> SaveConfig | None:
        """Return the config without the reduction ``fingerprint``; None if nothing is left."""
        if "fingerprint" not in self.reductions:
            return self
        rest = tuple(word for word in self.reductions if word != "fingerprint")
        keeps = rest or self.wants_tensor
        return replace(self, reductions=rest, tensor=self.wants_tensor) if keeps else None

    def guarded(self, guard: Callable[[str, Predicate], Predicate]) -> SaveConfig:
        """Return the config with a guarded predicate, which saves nothing on errors.

        Args:
            guard: `Shield.guard`.
        """
        if self.when is None or isinstance(self.when, str):
            return self
        guarded = guard(f"the predicate {_spelled(self.when)}", self.when)
        return replace(self, when=guarded)

    def to_json(self) -> dict[str, Any]:
        """Return the config as plain JSON types with all keys; a predicate becomes its name."""
        document = {name: getattr(self, name) for name in _IN_JSON}
        if callable(self.when):
            document["when"] = _spelled(self.when)
        return {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in document.items()
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Create a config from a table of its attributes.

        Raises:
            ConfigError: an unknown key or an invalid value.
        """
        known = _IN_JSON
        for key in document:
            if key not in known:
                raise ConfigError(f"{key}: no such key{did_you_mean(key, [*known, 'regex'])}")
        return cls(**document)


# The names of the attributes that are part of the JSON.
_IN_JSON = tuple(entry.name for entry in fields(SaveConfig) if entry.name != "elastic")


def _spelled(predicate: Predicate) -> str:
    """Return the qualified name of a predicate."""
    name = getattr(predicate, "__qualname__", type(predicate).__qualname__)
    return f"{predicate.__module__}.{name}"


def _is_step(value: object) -> bool:
    """Return whether a value is a step number; booleans are not."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _as_tuple(key: str, value: object) -> tuple[Any, ...]:
    """Return a list or tuple as a tuple."""
    if not isinstance(value, (list, tuple)):
        raise ConfigError(f"{key} = {value!r}: must be a list")
    return tuple(value)


def _check_words(key: str, words: tuple[str, ...], known: tuple[str, ...]) -> None:
    """Raise `ConfigError` for the first word that is not known."""
    for word in words:
        if word not in known:
            hint = did_you_mean(str(word), known) or f"; valid values: {', '.join(known)}"
            raise ConfigError(f"{key}: invalid value {word!r}{hint}")
