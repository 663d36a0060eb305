"""Ordered read-ahead with concurrent requests."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from vinedresser.store.storage.base import Span

__all__ = ["read_ahead"]

# Maximum bytes in flight or waiting for their turn, unless a single span is larger.
_MOST = 64 << 20


def read_ahead(
    spans: Iterable[Span], read: Callable[[Span], bytes | None], *, max_concurrent: int
) -> Iterator[bytes | None]:
    """Yield the content of each span in order while reading the following ones.

    The read-ahead starts with one span and grows by two with each one yielded, so that readers of
    only a few spans do not pay for many.

    Args:
        spans: drawn in the caller's thread, earlier than their contents are yielded.
        read: reads one span, in any thread; its errors are raised in the span's turn.
        max_concurrent: maximum number of spans in flight or waiting for their turn.
    """
    ahead: deque[tuple[Span, Future[bytes | None]]] = deque()
    waiting = 0
    upcoming = iter(spans)
    following = next(upcoming, None)
    taken = 0
    with ThreadPoolExecutor(max_concurrent, thread_name_prefix="read-ahead") as pool:
        try:
            while ahead or following is not None:
                while following is not None and _room(
                    len(ahead), waiting, following, taken, max_concurrent
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
            # The generator was closed: cancel the reads that have not begun.
            for _, future in ahead:
                future.cancel()


def _room(in_flight: int, waiting: int, span: Span, taken: int, max_concurrent: int) -> bool:
    """Return whether another span may be requested."""
    if not in_flight:
        return True
    return in_flight < min(max_concurrent, 2 * taken) and waiting + span.length <= _MOST
