"""Reading what is far away ahead of its turn: several requests under way, the order kept."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from vinedresser.store.storage.base import Span

__all__ = ["read_ahead"]

# Bytes that may be under way or wait for their turn, unless a single span has more.
_MOST = 64 << 20


def read_ahead(
    spans: Iterable[Span], read: Callable[[Span], bytes | None], *, at_once: int
) -> Iterator[bytes | None]:
    """Yield what is read of each span, in their order, while those that follow are on their way.

    The first is read alone, and with each one that is taken two more at a time, so that whoever
    wants a few only does not pay for many.

    Args:
        spans: drawn in the caller's thread, ahead of what is yielded.
        read: reads one, in any thread; what it raises is raised when it is the span's turn.
        at_once: how many may be under way or wait for their turn.
    """
    ahead: deque[tuple[Span, Future[bytes | None]]] = deque()
    waiting = 0
    upcoming = iter(spans)
    following = next(upcoming, None)
    taken = 0
    with ThreadPoolExecutor(at_once, thread_name_prefix="read-ahead") as pool:
        try:
            while ahead or following is not None:
                while following is not None and _room(
                    len(ahead), waiting, following, taken, at_once
                ):
                    waiting += following.length
                    ahead.append((following, pool.submit(read, following)))
                    following = next(upcoming, None)
                span, future = ahead.popleft()
                content = future.result()
                waiting -= span.length
                taken += 1
                yield content
        finally:
            # Nobody waits for the rest: of what has not begun nothing is read.
            for _, future in ahead:
                future.cancel()


def _room(under_way: int, waiting: int, span: Span, taken: int, at_once: int) -> bool:
    """Say whether a further span may be on its way."""
    if not under_way:
        return True
    return under_way < min(at_once, 2 * taken) and waiting + span.length <= _MOST
