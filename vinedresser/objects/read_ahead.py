"""Reading ahead: several requests at a time, their answers in order, within a bound of memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Q = TypeVar("Q")
A = TypeVar("A")


def read_ahead(
    requests: Iterable[Q],
    read: Callable[[Q], A],
    *,
    size: Callable[[Q], int],
    max_concurrent: int,
    max_bytes: int = 64 << 20,
    ramp: bool = True,
    pool: ThreadPoolExecutor | None = None,
) -> Iterator[A]:
    """Yield the answer to each request in order while reading the following ones.

    Args:
        requests: drawn in the caller's thread, earlier than their answers are yielded.
        read: answers one request, in any thread; its errors are raised in the request's turn.
        size: bytes of the answer to a request.
        max_concurrent: maximum number of requests in flight or waiting for their turn.
        max_bytes: maximum bytes of their answers, unless a single one is larger.
        ramp: start with one request and grow by two with each answer yielded, so that readers of
            only a few do not pay for many; else start with all that are allowed.
        pool: threads that read; None: the call's own.
    """
    ahead: deque[tuple[int, Future[A]]] = deque()
    waiting = 0
    upcoming = iter(requests)
    following = next(upcoming, None)
    taken = 0
    own = pool or ThreadPoolExecutor(max_concurrent, thread_name_prefix="read-ahead")
    ended = False
    try:
        while ahead or following is not None:
            while following is not None:
                bytes_more = size(following)
                full = len(ahead) >= (min(max_concurrent, 2 * taken) if ramp else max_concurrent)
                if ahead and (full or waiting + bytes_more > max_bytes):
                    break
                waiting += bytes_more
                ahead.append((bytes_more, own.submit(read, following)))
                following = next(upcoming, None)
            bytes_less, future = ahead.popleft()
            answer = future.result()
            waiting -= bytes_less
            taken += 1
            yield answer
        ended = True
    finally:
        for _, future in ahead:
            future.cancel()
        if pool is None:
            # Else the generator was closed, perhaps by the garbage collector while a thread was
            # started. Python then holds a lock without which no thread ends: none is waited for.
            own.shutdown(wait=ended)
