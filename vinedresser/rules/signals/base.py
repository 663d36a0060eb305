"""The base class of signals, and the pool from which rules share them."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from vinedresser.errors import CorruptData
from vinedresser.rules.need import Need
from vinedresser.rules.shield import shielded
from vinedresser.store.reading.step import Step
from vinedresser.store.records import RunRecord

__all__ = ["Signal", "SignalPool", "constructor_parameters", "signals_of"]


def constructor_parameters(holder: object) -> dict[str, Any]:
    """Return the constructor arguments of an object, stored in attributes of the same names."""
    parameters = inspect.signature(type(holder)).parameters
    return {name: getattr(holder, name) for name in parameters}


class Signal(ABC):
    """A quantity of a run that rules use, such as whether the run learns.

    A signal is a pure fold over the committed steps, like a rule. A rule creates its signals in the
    constructor and stores them in attributes; a signal may contain others in the same way. The
    engine replaces equal signals (same class and parameters) by a single one, and updates it at
    each step before the rules.

    Attributes:
        needs: data that the hook must capture.
    """

    needs: tuple[Need, ...] = ()

    @property
    def key(self) -> tuple[Any, ...]:
        """The class and the parameters, which identify equal signals."""
        return (type(self), *sorted(constructor_parameters(self).items()))

    def begin(self, info: RunRecord) -> None:  # noqa: B027 (optional)
        """Read the run's record, before the first step."""

    def on_record(self, info: RunRecord) -> None:  # noqa: B027 (optional)
        """Read what the hook completes in the record, in the first steps and for new models.

        Called after `begin`, and whenever the record has changed.
        """

    @abstractmethod
    def update(self, step: Step) -> None:
        """Process the next step, of any mode and rank."""


def signals_of(holder: object) -> list[Signal]:
    """Return the signals of an object; nested signals come before those that contain them."""
    found: list[Signal] = []
    for value in vars(holder).values():
        if isinstance(value, Signal):
            found += [*signals_of(value), value]
    return found


class SignalPool:
    """The distinct signals of some rules.

    Exceptions of a signal are passed on to the rules that use it. `CorruptData` affects one step;
    any other exception disables the signal.
    """

    def __init__(self) -> None:
        self._signals: dict[tuple[Any, ...], Signal] = {}
        self._errors: dict[int, Exception] = {}

    def adopt(self, holder: object) -> None:
        """Replace the signals of an object by equal ones of the pool."""
        for name, value in vars(holder).items():
            if isinstance(value, Signal):
                setattr(holder, name, self._own(value))

    def _own(self, signal: Signal) -> Signal:
        if signal.key not in self._signals:
            # Nested signals first, so that they are updated first.
            self.adopt(signal)
            self._signals[signal.key] = signal
        return self._signals[signal.key]

    def begin(self, info: RunRecord) -> None:
        """Begin all signals."""
        for signal in self._signals.values():
            self._shielded(signal, partial(signal.begin, info))
        self.on_record(info)

    def on_record(self, info: RunRecord) -> None:
        """Let all signals read the record, as it is now."""
        for signal in self._signals.values():
            if id(signal) not in self._errors:
                self._shielded(signal, partial(signal.on_record, info))

    def update(self, step: Step) -> None:
        """Update all signals with the next step."""
        self._errors = {
            key: error for key, error in self._errors.items() if not isinstance(error, CorruptData)
        }
        for signal in self._signals.values():
            if id(signal) not in self._errors:
                self._shielded(signal, partial(signal.update, step))

    def _shielded(self, signal: Signal, call: Callable[[], None]) -> None:
        """Call a signal; keep its exception for the rules that use it."""

        def keep(error: Exception) -> None:
            self._errors[id(signal)] = error

        shielded(call, keep)

    def check(self, held: Iterable[Signal]) -> None:
        """Raise the exception of the first of these signals that raised one.

        Raises:
            Exception: the signal's exception.
        """
        for signal in held:
            if error := self._errors.get(id(signal)):
                raise error
