"""The border between what is ours and the training: no fault of ours crosses it."""

from __future__ import annotations

import functools
import logging
import os
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import ParamSpec, TypeVar

__all__ = ["Shield"]

_LOG = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")

# Asking the kernel for it at every callback would cost more than the callback.
_process = os.getpid()


def _forked() -> None:
    global _process  # noqa: PLW0603 (what a fork changes is the process itself)
    _process = os.getpid()


os.register_at_fork(after_in_child=_forked)


class Shield:
    """Catches the errors of our callbacks, reports each kind once, and counts them.

    `TrainingStopped`, a SystemExit, passes, and so does KeyboardInterrupt. In a forked child (a
    worker of a data loader) nothing of ours runs at all.

    Attributes:
        problems: how often each kind of problem came up, by what was reported of the first.
    """

    def __init__(self) -> None:
        self.problems: Counter[str] = Counter()
        self._first: dict[tuple[str, type[Exception]], str] = {}
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
        then: str = "training goes on",
    ) -> Callable[P, R | None]:
        """Return a callback that cannot harm the training that calls it.

        Args:
            doing: what the callback does, in words that can follow "capture failed in".
            callback: what to run; None is returned where it fails or does not run.
            names: the position of the argument that names what it was about; None: none does.
            skip: the callback is passed over while this returns True.
            then: what comes of a failure.
        """
        process = self._process

        @functools.wraps(callback)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> R | None:
            if (skip is not None and skip()) or _process != process:
                return None
            try:
                return callback(*args, **kwargs)
            except Exception as error:  # noqa: BLE001 (the one border that shields a training)
                what = doing if names is None else f"{doing} {args[names]}"
                self._caught((doing, type(error)), f"capture failed in {what}", error, then)
                return None

        return guarded

    def report(self, problem: str) -> None:
        """Say a thing on stderr, once; count it every time."""
        self.problems[problem] += 1
        if self.problems[problem] == 1:
            _LOG.info("%s", problem)
            # Nobody may be listening any more, which harms nobody either.
            with suppress(OSError, ValueError, AttributeError):
                sys.stderr.write(f"vinedresser: {problem}\n")
                sys.stderr.flush()

    def _caught(
        self, kind: tuple[str, type[Exception]], where: str, error: Exception, then: str
    ) -> None:
        """Report an error, unless one of its kind came up before."""
        if kind not in self._first:
            self._first[kind] = f"{where}: {type(error).__name__}: {error}; {then}"
            _LOG.debug("%s", self._first[kind], exc_info=error)
        self.report(self._first[kind])
