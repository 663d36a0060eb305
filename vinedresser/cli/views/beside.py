"""Views in threads, beside the work that they show."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import TypeVar, TypeVarTuple

__all__ = ["shown_beside", "shown_when_observed"]

_Subject = TypeVar("_Subject")
_Subjects = TypeVarTuple("_Subjects")


@contextmanager
def shown_beside(
    show: Callable[[*_Subjects, threading.Event], None], *subjects: *_Subjects
) -> Iterator[None]:
    """Show something while the body runs.

    Args:
        show: called in a thread with the subjects, and an event that is set when the body is over.
    """
    over = threading.Event()
    thread = threading.Thread(target=show, args=(*subjects, over), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def shown_when_observed(
    observer: ContextVar[Callable[[_Subject], None] | None],
    show: Callable[[_Subject, threading.Event], None],
) -> Iterator[None]:
    """Show each subject that the body passes to the observer; see `shown_beside`."""
    with ExitStack() as views:
        token = observer.set(lambda subject: views.enter_context(shown_beside(show, subject)))
        try:
            yield
        finally:
            observer.reset(token)
