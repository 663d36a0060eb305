"""When something is saved, and what of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Self

from vinedresser.errors import ConfigError, did_you_mean
from vinedresser.store.reductions import parse_reduction
from vinedresser.store.step_record import MODES

__all__ = ["Predicate", "SaveConfig"]

# Says of a step number and a mode ("train", "eval", "predict") whether to save.
Predicate = Callable[[int, str], bool | None]


@dataclass(frozen=True)
class SaveConfig:
    """When the tensors of a collection are saved, and what of them.

    Sequences may be given as lists; they are kept as tuples.

    Attributes:
        every: save at ``start`` and every so many train steps after it; 0 saves at the explicit
            ``steps`` only. Evaluations and predictions are rare already: each of them is saved.
        start: first step.
        stop: first step no longer saved; None never ends.
        steps: steps saved in any case.
        modes: "train", "eval", "predict"; the modes in which it applies.
        reductions: statistics to keep, by name (`vinedresser.store.reductions`).
        tensor: keep the tensor itself; None: if and only if no reductions are asked for.
        rows: maximum number of rows to keep of a tensor, evenly strided along its first axis
            (`store.reductions.strided_rows`), so that all tensors with as many rows keep the same
            samples. Of large rows fewer are kept, as many as fit into 1 MiB, and none if a single
            row does not fit. Statistics cover all rows. None: all rows.
        when: a predicate of step and mode that a step must fulfil besides; explicit ``steps`` need
            not. As a word (in a run's record) it names a predicate that only the training has;
            here nothing is due by it then.

    Raises:
        ConfigError: a value is not right; the message names it.
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
        """Check what is kept of a tensor."""
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
        """What says when it is due: those that have it in common are so at the same steps."""
        # Two equal predicates need not answer alike.
        when = id(self.when) if callable(self.when) else self.when
        return (self.every, self.start, self.stop, self.steps, self.modes, when)

    def due(self, step: int, mode: str) -> bool:
        """Say whether a step is saved.

        Args:
            step: number of optimizer steps done before.
            mode: "train", "eval" or "predict".
        """
        if mode not in self.modes:
            return False
        if step in self.steps:
            return True
        if not self.every or step < self.start or (self.stop is not None and step >= self.stop):
            return False
        if mode == "train" and (step - self.start) % self.every:
            return False
        if self.when is None:
            return True
        return not isinstance(self.when, str) and bool(self.when(step, mode))

    def guarded(self, guard: Callable[[str, Predicate], Predicate]) -> SaveConfig:
        """Return it with a predicate that cannot harm the training, which saves nothing on error.

        Args:
            guard: `Shield.guard`.
        """
        if self.when is None or isinstance(self.when, str):
            return self
        guarded = guard(f"the predicate {_spelled(self.when)}", self.when)
        return replace(self, when=guarded)

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON types, every key written out; of a predicate, its name."""
        document = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        if callable(self.when):
            document["when"] = _spelled(self.when)
        return {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in document.items()
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Build it from a table of its attributes.

        Raises:
            ConfigError: an unknown key, or a value that is not right.
        """
        known = [entry.name for entry in fields(cls)]
        for key in document:
            if key not in known:
                raise ConfigError(f"{key}: no such key{did_you_mean(key, [*known, 'regex'])}")
        return cls(**document)


def _spelled(predicate: Predicate) -> str:
    """Return the name of a predicate, for people to read."""
    name = getattr(predicate, "__qualname__", type(predicate).__qualname__)
    return f"{getattr(predicate, '__module__', '')}.{name}"


def _is_step(value: object) -> bool:
    """Say whether a value is a step number; True and False are none."""
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
            hint = did_you_mean(str(word), known) or f"; known are {', '.join(known)}"
            raise ConfigError(f"{key}: there is no {word!r}{hint}")
