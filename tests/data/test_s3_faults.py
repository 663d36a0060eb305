"""Training data from an S3 server that is busy, breaks connections, is frozen or killed."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import pytest

from tests.data import written
from tests.data.faulty_proxy import Proxy, faulty_proxy
from tests.data.test_s3 import put_files
from vinedresser.data import Dataset
from vinedresser.data.sources import s3 as s3_source
from vinedresser.data.sources.s3 import Throttle
from vinedresser.objects.hedging import Hedge
from vinedresser.testing.s3_server import TestServer


@pytest.fixture(autouse=True)
def hedge(monkeypatch: pytest.MonkeyPatch) -> Hedge:
    """Return a hedge that knows nothing of other tests."""
    fresh = Hedge()
    monkeypatch.setattr(s3_source, "hedge", lambda: fresh)
    return fresh


@pytest.fixture
def proxy(s3_server: TestServer) -> Iterator[Proxy]:
    with faulty_proxy(s3_server.environment["AWS_ENDPOINT_URL"]) as proxy:
        yield proxy


def test_a_broken_connection_continues_at_the_last_byte(
    s3: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = put_files(s3, [200], longest=20_000)
    monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
    dataset = Dataset(f"{s3}/", batch_size=50, chunk_bytes=500_000, connections=2)
    first = proxy.seen
    proxy.begins.clear()
    proxy.fault = lambda number: 1000 * (number - first) if number < first + 4 else None
    assert written.values(dataset) == records
    begins = list(proxy.begins.values())
    cut = [proxy.begins[number] + 1000 * (number - first) for number in range(first, first + 4)]
    # The first one was broken off before its first byte.
    assert [begins.count(begin) for begin in cut] == [2, 1, 1, 1]


def test_a_busy_server_gets_fewer_requests(
    s3: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = put_files(s3, [40] * 6)
    monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
    dataset = Dataset(f"{s3}/", batch_size=10, connections=4)
    throttle = Throttle()
    monkeypatch.setattr(s3_source, "throttle", lambda: throttle)
    first = proxy.seen
    proxy.fault = lambda number: -1 if number in (first + 1, first + 2, first + 5) else None
    assert written.values(dataset) == records
    assert proxy.seen == first + 9
    assert throttle.limit < 4


def test_a_throttle_halves_and_recovers() -> None:
    throttle = Throttle()

    class BusyError(Exception):
        pass

    def ask(error: Exception | None) -> None:
        with throttle.request(lambda error: isinstance(error, BusyError)):
            entered.put(None)
            leave.acquire()
            if error is not None:
                raise error

    entered: queue.Queue[None] = queue.Queue()
    leave = threading.Semaphore(0)
    with ThreadPoolExecutor(8) as pool:
        busy = [pool.submit(ask, BusyError()) for _ in range(8)]
        for _ in busy:
            entered.get()
        leave.release(8)
        assert all(isinstance(one.exception(), BusyError) for one in busy)
        # Not once for each of them.
        assert throttle.limit == 4
        fine = [pool.submit(ask, None) for _ in range(8)]
        for _ in range(4):
            entered.get()
        assert entered.empty()
        leave.release(8)
        assert all(one.exception() is None for one in fine)
    assert 5 < throttle.limit < 6
    with pytest.raises(ZeroDivisionError), throttle.request(lambda error: False):
        raise ZeroDivisionError
    assert 5 < throttle.limit < 6


def test_a_request_that_is_not_answered_is_sent_again(
    s3: str, proxy: Proxy, hedge: Hedge, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = put_files(s3, [20] * 100)
    dataset = Dataset(f"{s3}/", batch_size=100, connections=2)
    monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
    answered = threading.Event()
    first = proxy.seen
    # One of a hundred requests, and the answer comes when all records are there.
    proxy.fault = lambda number: answered.wait() and None if number == first + 80 else None
    try:
        assert written.values(dataset) == records
    finally:
        answered.set()
    # Reads of the index, before the proxy, count too.
    assert 1 <= hedge.repeated <= 0.05 * hedge.reads


def test_a_frozen_server_is_waited_for(s3: str, s3_server: TestServer) -> None:
    records = put_files(s3, [60] * 6, longest=20_000)
    dataset = Dataset(f"{s3}/", batch_size=20, chunk_bytes=100_000, connections=2)
    batches = iter(dataset)
    found = written.values(islice(batches, 3))
    s3_server.pause()
    try:
        with ThreadPoolExecutor(1) as pool:
            rest = pool.submit(written.values, batches)
            with pytest.raises(TimeoutError):
                rest.result(timeout=0.3)
            s3_server.resume()
            found += rest.result()
    finally:
        s3_server.resume()
    assert found == records


@pytest.mark.thorough
def test_a_server_that_is_killed_costs_no_record(s3: str, s3_server: TestServer) -> None:
    records = put_files(s3, [60] * 6, longest=20_000)
    dataset = Dataset(f"{s3}/", batch_size=20, chunk_bytes=100_000, connections=2)
    batches = iter(dataset)
    found = written.values(islice(batches, 3))
    s3_server.kill()
    restarting = threading.Thread(target=s3_server.restart)
    restarting.start()
    try:
        found += written.values(batches)
    finally:
        restarting.join()
    assert found == records
