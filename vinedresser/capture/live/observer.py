"""Answering standing queries at the events of a training."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from vinedresser.capture.config.asked import Asked
from vinedresser.capture.recording.recording import PlainStep, Recording
from vinedresser.capture.shield import Shield
from vinedresser.errors import QueryError
from vinedresser.queries.naming import SPELLINGS
from vinedresser.queries.numeric import Numeric
from vinedresser.queries.numpy_numeric import NumpyNumeric
from vinedresser.queries.observables import Moment, Observables
from vinedresser.queries.passed_steps import PassedSteps
from vinedresser.queries.table import Armed, StreamTable
from vinedresser.store.step_record import Mode

# Sets of queries whose collections are remembered.
_MOST_SETS = 64

_Values = dict[str, Callable[[], Any]]


class LiveObserver:
    """The `Observer` of one rank: has captured what queries need, and evaluates them.

    Nothing is captured at an event that a rate leaves out: whether it does is decided before the
    event, by a clock that stands still until it is over.

    Args:
        shield: guards the training; the time of queries does not count as the hook's.
        known: return the names of all tensors that can be captured.
        roots: return the paths of the watched models.

    Attributes:
        events: number of the user's events so far, by name.
        offered: names at the latest event of each kind that a query has seen.
        described: type and shape of tensors that queries have read, by name.
    """

    def __init__(
        self,
        rank: int,
        shield: Shield,
        *,
        known: Callable[[], Iterable[str]],
        roots: Callable[[], tuple[str, ...]],
    ) -> None:
        self.known = known
        self.table = StreamTable(lambda: self._now, known)
        self.events: dict[str, int] = {}
        self.offered: dict[str, dict[str, None]] = {}
        self.described: dict[str, str] = {}
        self._rank = rank
        self._meter = shield.meter
        self._roots = roots
        self._passed = PassedSteps(self.table, rank)
        self._now = 0.0
        # What computes with the values, and the context in which it does.
        self._numeric: Numeric = NumpyNumeric()
        self._modes: Callable[[], AbstractContextManager[object]] = nullcontext
        # The script saves the number of the epoch, which then counts, as in the stored run.
        self._saves_epochs = False
        # Of the train step and the evaluation that have begun: when, which queries, what they need.
        self._begun: dict[Mode, tuple[float, Armed, Asked | None]] = {}
        self._collections: dict[tuple[frozenset[str], tuple[str, ...]], Asked] = {}
        self._arm = shield.guard("preparing queries", self._begin)
        self._answer = shield.guard("answering queries", self._end)
        self._answer_event = shield.guard("answering queries", self._at_event)

    def asked(self, mode: Mode) -> Asked | None:
        """See `Observer.asked`."""
        if not len(self.table) or (mode == "train" and self._passed.goes_on()):
            return None
        return self._arm(mode)

    def train_step_ended(self, step: int, found: Recording | PlainStep | None) -> None:
        """See `Observer.train_step_ended`."""
        if "train" in self._begun:
            self._answer("step", "train", step, found)
        else:
            self._passed.step_ended(step)

    def evaluation_ended(self, step: int, found: Recording | None) -> None:
        """See `Observer.evaluation_ended`."""
        if "eval" in self._begun:
            self._answer("evaluation", "eval", step, found)

    def happened(self, event: str, step: int, values: Mapping[str, Any]) -> None:
        """Answer at an event of the user.

        Args:
            event: name of the event.
            step: number of completed train steps.
            values: numbers, tensors, or functions that return them when a query reads them.
        """
        self.events[event] = self.events.get(event, 0) + 1
        if len(self.table):
            self._answer_event(event, step, values)

    def finish(self) -> None:
        """Deliver the last answers; the training has ended."""
        self._passed.settle()
        self.table.finish()

    def _begin(self, mode: Mode) -> Asked | None:
        """Prepare for a train step or an evaluation."""
        self._passed.settle()
        self._now = time.monotonic()
        armed = self.table.arm(mode)
        if armed.passed_over:
            self._passed.begin(armed)
            return None
        key = (armed.needs, self._roots())
        asked = self._collections.get(key)
        if asked is None:
            if len(self._collections) >= _MOST_SETS:
                self._collections.clear()
            asked = self._collections[key] = Asked(*key)
        self._begun[mode] = self._now, armed, asked
        return asked if asked.collections else None

    def _end(self, event: str, mode: Mode, step: int, found: Recording | PlainStep | None) -> None:
        """Answer at the end of a train step or an evaluation."""
        self._now, armed, asked = self._begun.pop(mode)
        values: _Values = {}
        if found is not None:
            # Those that have changed are copied from the next step on.
            if sum(one.changed for one in found.live.values()):
                return
            for name, one in found.live.items():
                values[name] = one.read
                if name not in self.described:
                    self.described[name] = one.described
        numbers = {} if found is None else found.scalars
        for name, number in (numbers if isinstance(numbers, dict) else numbers()).items():
            values[name] = _reader(number)
        self._add_standard(values)
        seen = self.offered.setdefault(event, {})
        if armed.idle:
            # Their windows count as left out, though nothing was captured for them.
            for name in seen:
                if name not in values and not (asked is not None and asked.holds(name)):
                    values[name] = _not_captured
        seen.update(dict.fromkeys(values))
        self._observe(event, mode, step, values, armed)

    def _at_event(self, event: str, step: int, given: Mapping[str, Any]) -> None:
        """Answer at an event of the user."""
        self._passed.settle()
        self._now = time.monotonic()
        values = {name: _reader(value) for name, value in given.items()}
        self.offered.setdefault(event, {}).update(dict.fromkeys(values))
        self._observe(event, "train", step, values, None)

    def _add_standard(self, values: _Values) -> None:
        """Add the names that do not depend on the model."""
        for value in values:
            if value.startswith("optimizer_state/") and value.endswith(("/lr", ".lr")):
                values["lr"] = values[value]
                break
        if "timing/step" in values:
            values["step_seconds"] = values["timing/step"]
        for root in ("batch", *self._roots()):
            if f"inputs/{root}" in values:
                values["inputs"] = values[f"inputs/{root}"]
        for spelling in SPELLINGS["epoch"]:
            if spelling in values:
                values["epoch"] = values[spelling]
                self._saves_epochs = True
                break

    def _observe(
        self, event: str, mode: Mode, step: int, values: _Values, armed: Armed | None
    ) -> None:
        values["step"] = _reader(step)
        # The event "epoch" is between two epochs.
        if not self._saves_epochs and event != "epoch":
            values["epoch"] = _reader(self.events.get("epoch", 0))
        began = self._meter.clock() if self._meter.on else None
        if self._modes is nullcontext and "torch" in sys.modules:
            self._use_torch()
        moment = Moment(event, step, mode, self._rank, time.time())
        with self._modes():
            self.table.observe(Observables(moment, values, self._numeric), armed)
        if began is not None:
            self._meter.spent -= self._meter.clock() - began

    def _use_torch(self) -> None:
        from vinedresser.capture.torch_.numeric import TorchNumeric
        from vinedresser.frameworks.torch_.modes import WithoutModes

        self._numeric, self._modes = TorchNumeric(), WithoutModes


def _reader(value: Any) -> Callable[[], Any]:
    if callable(value):
        read: Callable[[], Any] = value
        return read
    return lambda: value


def _not_captured() -> Any:
    raise QueryError("was not captured at this event")
