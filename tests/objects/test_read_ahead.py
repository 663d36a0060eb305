"""Read-ahead: order, limits and errors."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import islice

import pytest

from tests.waiting import until
from vinedresser.errors import StoreError
from vinedresser.objects import Span
from vinedresser.objects.read_ahead import read_ahead


def length_of(span: Span) -> int:
    return span.length


class Store:
    """Answers each span with its number; the later of two neighbours first."""

    def __init__(self, count: int, *, length: int = 10, fails: int = -1) -> None:
        self.drawn = 0
        self.most = 0
        self._spans = [Span(str(number), 0, length) for number in range(count)]
        self._fails = fails
        self._under_way = 0
        self._lock = threading.Lock()
        self._odd_done = [threading.Event() for _ in range(count + 1)]

    def spans(self) -> Iterator[Span]:
        for span in self._spans:
            self.drawn += 1
            yield span

    def read(self, span: Span) -> bytes | None:
        with self._lock:
            self._under_way += 1
            self.most = max(self.most, self._under_way)
        number = int(span.key)
        if number % 2:
            self._odd_done[number].set()
        elif number and number + 1 < len(self._spans):
            self._odd_done[number + 1].wait(0.05)
        with self._lock:
            self._under_way -= 1
        if number == self._fails:
            raise StoreError(f"s3://bucket/{span.key}: the connection broke")
        return None if number == 7 else span.key.encode()


def test_the_order_is_kept_with_several_in_flight() -> None:
    store = Store(40)
    found = list(read_ahead(store.spans(), store.read, size=length_of, max_concurrent=4))
    assert found == [None if number == 7 else str(number).encode() for number in range(40)]
    assert 2 <= store.most <= 4


def test_no_more_spans_are_drawn_than_allowed_in_flight() -> None:
    store = Store(40)
    reading = read_ahead(store.spans(), store.read, size=length_of, max_concurrent=4)
    for taken in range(1, 30):
        next(reading)
        # And the one that is looked at whether there is room for it.
        assert store.drawn <= taken + 4 + 1
    first = Store(40)
    next(read_ahead(first.spans(), first.read, size=length_of, max_concurrent=16))
    assert first.drawn == 2
    whole = Store(40)
    next(read_ahead(whole.spans(), whole.read, size=length_of, max_concurrent=16, ramp=False))
    assert whole.drawn == 17


@pytest.mark.thorough
@pytest.mark.parametrize(("length", "most"), [(16 << 20, 4), (40 << 20, 1), (100 << 20, 1)])
def test_memory_is_bounded(length: int, most: int) -> None:
    store = Store(20, length=length)
    assert len(list(read_ahead(store.spans(), store.read, size=length_of, max_concurrent=16))) == 20
    assert store.most <= most


def test_an_error_is_raised_in_its_turn() -> None:
    store = Store(20, fails=11)
    reading = read_ahead(store.spans(), store.read, size=length_of, max_concurrent=16)
    assert len(list(islice(reading, 11))) == 11
    with pytest.raises(StoreError, match="s3://bucket/11"):
        next(reading)


def test_closing_the_reader_cancels_the_rest() -> None:
    others = set(threading.enumerate())
    store = Store(40)
    reading = read_ahead(store.spans(), store.read, size=length_of, max_concurrent=4)
    next(reading)
    assert isinstance(reading, Iterator)
    reading.close()  # type: ignore[attr-defined]
    left = set(threading.enumerate()) - others
    until(lambda: not any(thread.is_alive() for thread in left), "the end of the reads under way")
    assert store.drawn < 40


def test_closing_the_reader_waits_for_no_thread() -> None:
    # As where the garbage collector closes it while a thread is started: until that has ended,
    # Python waits for no other one.
    go_on = threading.Event()

    def read(span: Span) -> bytes:
        if span.key != "0":
            assert go_on.wait(120)
        return b""

    spans = (Span(str(number), 0, 10) for number in range(40))
    reading = read_ahead(spans, read, size=length_of, max_concurrent=4, ramp=False)
    next(reading)
    closing = threading.Thread(target=reading.close)  # type: ignore[attr-defined]
    closing.start()
    try:
        closing.join(60)
        assert not closing.is_alive(), "it waits for the reads under way"
    finally:
        go_on.set()
