"""What a signal is, and how rules come to share one."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from vinedresser.errors import CorruptData
from vinedresser.rules.shield import shielded

if TYPE_CHECKING:
    from vinedresser.rules.need import Need
    from vinedresser.store.reading.step import Step
    from vinedresser.store.records import RunRecord

__all__ = ["Signal", "SignalPool", "constructor_parameters", "signals_of"]


def constructor_parameters(holder: object) -> dict[str, Any]:
    """Return the parameters of an object's constructor, which it keeps under their own names."""
    parameters = inspect.signature(type(holder)).parameters
    return {name: getattr(holder, name) for name in parameters}


class Signal(ABC):
    """Something that rules ask about a run, such as whether it learns.

    It is a pure fold over the committed steps, as a rule is. A rule makes the signals that it wants
    in its constructor and keeps them as attributes; a signal may keep others in the same way. The
    engine gives all that hold equal ones (the same class with the same parameters) one and the
    same, and shows it each step before the rules.

    Attributes:
        needs: what has to be captured for it.
    """

    needs: tuple[Need, ...] = ()

    @property
    def key(self) -> tuple[Any, ...]:
        """What signals that are equal have in common: the class and the parameters."""
        return (type(self), *sorted(constructor_parameters(self).items()))

    def begin(self, info: RunRecord) -> None:  # noqa: B027 (few signals want it)
        """Take note of the run, before its first step."""

    @abstractmethod
    def update(self, step: Step) -> None:
        """Take in the next step, of any mode and rank."""


def signals_of(holder: object) -> list[Signal]:
    """Return the signals that an object holds, those that they hold themselves first."""
    found: list[Signal] = []
    for value in vars(holder).values():
        if isinstance(value, Signal):
            found += [*signals_of(value), value]
    return found


class SignalPool:
    """The signals of some rules, each there once.

    What a signal raises is kept and told to those that hold it: data that cannot be read
    (`CorruptData`) concerns one step, anything else ends the signal.
    """

    def __init__(self) -> None:
        self._signals: dict[tuple[Any, ...], Signal] = {}
        self._errors: dict[int, Exception] = {}

    def adopt(self, holder: object) -> None:
        """Put the pool's own in the place of equal signals that an object holds."""
        for name, value in vars(holder).items():
            if isinstance(value, Signal):
                setattr(holder, name, self._own(value))

    def _own(self, signal: Signal) -> Signal:
        if signal.key not in self._signals:
            # Before it itself, so that what it builds on has seen a step when it is shown it.
            self.adopt(signal)
            self._signals[signal.key] = signal
        return self._signals[signal.key]

    def begin(self, info: RunRecord) -> None:
        """Tell the signals about the run."""
        for signal in self._signals.values():
            self._shielded(signal, partial(signal.begin, info))

    def update(self, step: Step) -> None:
        """Show the signals the next step."""
        self._errors = {
            key: error for key, error in self._errors.items() if not isinstance(error, CorruptData)
        }
        for signal in self._signals.values():
            if id(signal) not in self._errors:
                self._shielded(signal, partial(signal.update, step))

    def _shielded(self, signal: Signal, call: Callable[[], None]) -> None:
        """Call into a signal; keep what it raises for the rules that hold it."""

        def keep(error: Exception) -> None:
            self._errors[id(signal)] = error

        shielded(call, keep)

    def check(self, held: Iterable[Signal]) -> None:
        """Raise what one of these signals raised, if any did.

        Raises:
            Exception: whatever it was.
        """
        for signal in held:
            if error := self._errors.get(id(signal)):
                raise error
