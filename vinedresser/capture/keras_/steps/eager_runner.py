"""Steps that run in Python, line by line."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from vinedresser.capture.keras_.calls.interception import collecting
from vinedresser.capture.keras_.steps.asking import asks_of
from vinedresser.capture.keras_.steps.runner import Plain, Shown
from vinedresser.capture.keras_.watched import Watched
from vinedresser.capture.recording.recording import Recording

__all__ = ["EagerRunner"]


class EagerRunner:
    """A `Runner` that looks on while Keras's own function runs, and keeps what it sees at once.

    Args:
        watched: the model.
        uncompiled: returns a context in which compiled code runs uncompiled.
    """

    def __init__(
        self,
        watched: Watched,
        uncompiled: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        self._keeping = watched.keeping
        self._collector = watched.collector
        self._uncompiled = uncompiled

    def run(self, method: str, plain: Plain, iterator: Any, recording: Recording | None) -> Shown:
        """See `Runner.run`."""
        if recording is None:
            return Shown(plain(iterator), {}, single=False)
        losses: set[str] = set()

        def take(name: str, value: Any) -> None:
            if name.startswith("losses/"):
                losses.add(name)
            self._keeping.keep(recording, name, value)

        later = not recording.first_batch

        def asks(name: str) -> bool:
            # More may be due as soon as a layer was built.
            return asks_of(method, recording.due, later=later)(name)

        with self._uncompiled(), collecting(self._collector(asks, take)):
            logs = plain(iterator)
        return Shown(logs, {}, frozenset(losses), single=False)

    def batches(self, iterator: Any, most: int) -> Iterator[Any]:
        """See `Runner.batches`."""
        for data in itertools.islice(iterator, most):
            yield iter((data,))

    def reset(self, method: str) -> None:
        """See `Runner.reset`; there is nothing."""
