"""The barrier that keeps vinedresser's own errors out of the training."""

from __future__ import annotations

import functools
import os
import sys
import weakref
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import ParamSpec, TypeVar

from vinedresser.capture.meter import Meter
from vinedresser.errors import RunRemoved
from vinedresser.plain_logs import plain_logger
from vinedresser.plain_text import visible

_LOG = plain_logger(__name__)

P = ParamSpec("P")
R = TypeVar("R")

# os.getpid() in every callback would cost more than the callback.
_process = os.getpid()


def _forked() -> None:
    global _process  # noqa: PLW0603 (a fork changes the process itself)
    _process = os.getpid()


os.register_at_fork(after_in_child=_forked)


class Shield:
    """Catches the errors of callbacks, reports each kind once, and counts them.

    `TrainingStopped` (a SystemExit) and KeyboardInterrupt pass through. In a forked child, such as
    a data loader worker, callbacks do not run at all.

    Attributes:
        problems: number of occurrences of each problem, by its first message.
        told: problems that have been printed, possibly by the shields of other trainings.
        meter: measures the callbacks of the training's thread.
    """

    def __init__(self) -> None:
        self.problems: Counter[str] = Counter()
        self.told: set[str] = set()
        self.meter = Meter()
        self._first: dict[tuple[str, type[Exception]], str] = {}
        self._guarded: weakref.WeakSet[Callable[..., object]] = weakref.WeakSet()
        self._process = _process

    @property
    def ours(self) -> bool:
        """Whether this is the process in which the hook was made."""
        return _process == self._process

    def guard(
        self,
        doing: str,
        callback: Callable[P, R],
        *,
        names: int | None = None,
        skip: Callable[[], bool] | None = None,
        then: str = "training continues",
        metered: bool = True,
    ) -> Callable[P, R | None]:
        """Return a wrapper of a callback that never raises an Exception.

        The wrapper returns None if the callback fails or is skipped.

        Args:
            doing: description of the callback that can follow "capture failed in".
            names: index of the argument to append to the description; None: no argument.
            skip: the callback is skipped while this returns True.
            then: consequence of a failure, for the message.
            metered: whether the callback's time counts as that of the hook: not for callbacks that
                run a part of the training, or run on another thread.
        """
        process, meter = self._process, self.meter

        @functools.wraps(callback)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> R | None:
            if (skip is not None and skip()) or _process != process:
                return None
            measured = meter.on and metered and not meter.running
            if measured:
                meter.running, began = True, meter.clock()
            try:
                return callback(*args, **kwargs)
            except Exception as error:  # noqa: BLE001 (the one place that shields a training)
                what = doing if names is None else f"{doing} {args[names]}"
                self._caught((doing, type(error)), f"capture failed in {what}", error, then)
                return None
            finally:
                if measured:
                    meter.spent += meter.clock() - began
                    meter.running = False

        # It would lead to the callback also after the shield has released it.
        del guarded.__wrapped__
        self._guarded.add(guarded)
        return guarded

    def release(self) -> None:
        """Release all callbacks, which do nothing from now on.

        Objects that hold their own guarded methods are circles. With them, the training's models
        would stay in memory, and process groups run, until Python looks for circles.
        """
        for guarded in list(self._guarded):
            cells = zip(guarded.__code__.co_freevars, guarded.__closure__ or (), strict=True)
            dict(cells)["callback"].cell_contents = _nothing

    def report(self, problem: str) -> None:
        """Count a problem, and print it to stderr the first time."""
        self.problems[problem] += 1
        if problem not in self.told:
            self.told.add(problem)
            _LOG.info("%s", problem)
            # stderr may be closed.
            with suppress(OSError, ValueError, AttributeError):
                sys.stderr.write(f"vinedresser: {visible(problem)}\n")
                sys.stderr.flush()

    def _caught(
        self, kind: tuple[str, type[Exception]], where: str, error: Exception, then: str
    ) -> None:
        """Report an error under the message of the first of its kind."""
        if isinstance(error, RunRemoved):
            # Whatever was being done: the writer says the same.
            self.report(f"{error}; training continues")
            return
        if kind not in self._first:
            self._first[kind] = f"{where}: {type(error).__name__}: {error}; {then}"
            _LOG.debug("%s", self._first[kind], exc_info=error)
        self.report(self._first[kind])


def _nothing(*_: object, **__: object) -> None:
    """What a released callback does."""
