"""Latency of a 5 ms model with and without the recorder of its requests.

Each arm serves blocks of requests from one thread, interleaved; between two blocks the recorder's
thread has nothing to do. "without" runs twice: the difference of the two is noise. The time in
which a thread waits for a processor is left out, since other programs cause it. The 99th
percentile is that of a block; its median over the blocks leaves out those that something else hit.
Budget: within 2 %.

The cost in the caller's thread is the median of single calls of `record`, and memory is the growth
of the resident set after 20,000 requests.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import psutil
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks.measure import interleave, medians, table
from vinedresser.serving import Limits, RequestRecorder, watch

BUDGET = 0.02
SECONDS = 0.005
_SIZE = 192
# Bytes of inputs that a recorder keeps by default, and some more.
_FULL = 160 << 20


def served_model() -> Callable[[NDArray[Any]], NDArray[Any]]:
    """Return a model that multiplies matrices for 5 ms, mostly without the interpreter's lock."""
    weights = np.random.default_rng(0).normal(size=(_SIZE, _SIZE)).astype(np.float32)
    scores = np.random.default_rng(1).normal(size=(1, 10))

    def multiply(times: int) -> None:
        for _ in range(times):
            weights @ weights

    multiply(50)
    began = time.thread_time()
    multiply(200)
    times = max(1, round(200 * SECONDS / (time.thread_time() - began)))

    def predict(inputs: NDArray[Any]) -> NDArray[Any]:
        multiply(times)
        return scores.repeat(len(inputs), 0)

    return predict


def waited(statistics: BinaryIO) -> float:
    """Return the seconds in which a thread could run and had no processor.

    Args:
        statistics: its open file ``schedstat`` of the kernel.
    """
    return int(os.pread(statistics.fileno(), 100, 0).split()[1]) * 1e-9


def latencies(
    predict: Callable[[NDArray[Any]], Any], inputs: NDArray[Any], requests: int, threads: int = 1
) -> list[float]:
    """Return the seconds of each request, less those in which its thread had no processor."""
    found: list[float] = []

    def serve() -> None:
        with open("/proc/thread-self/schedstat", "rb") as statistics:
            for _ in range(requests // threads):
                before, began = waited(statistics), time.perf_counter()
                predict(inputs)
                ended = time.perf_counter()
                found.append(ended - began - waited(statistics) + before)

    workers = [threading.Thread(target=serve) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return found


def warm_up(recorder: RequestRecorder, inputs: NDArray[Any]) -> None:
    """Fill the memory of inputs for alerts: from then on, it is used again and again."""
    for _ in range(_FULL // inputs.nbytes if inputs.nbytes > 1 << 16 else 100):
        recorder.record(inputs)
        recorder.flush()


class Compared(NamedTuple):
    """Latencies of the arms, in seconds.

    Attributes:
        medians: the median latency of an arm.
        tails: the median over the blocks of the 99th percentile of a block.
        share: share of the requests that were recorded in the end.
    """

    medians: dict[str, float]
    tails: dict[str, float]
    share: float


def compare(inputs: NDArray[Any], *, rounds: int, requests: int, threads: int) -> Compared:
    """Return the latencies of each arm."""
    model = served_model()
    samples: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as store:
        recorder = RequestRecorder(store, "service")
        watched = watch(model, recorder)
        warm_up(recorder, inputs)

        def arm(name: str, predict: Callable[[NDArray[Any]], Any]) -> Callable[[], float]:
            def run() -> float:
                found = latencies(predict, inputs, requests, threads)
                recorder.flush()
                samples.setdefault(name, []).extend(found)
                return float(np.percentile(found, 99))

            return run

        tails = interleave(
            {
                "without": arm("without", model),
                "again": arm("again", model),
                "with": arm("with", watched),
            },
            rounds,
        )
        share = recorder.share
        recorder.close()
    return Compared(medians(samples), medians(tails), share)


def per_request(inputs: NDArray[Any], requests: int) -> tuple[float, float, float]:
    """Return the seconds in the caller's thread, those of all threads, and the growth in bytes."""
    outputs = np.zeros((len(inputs), 10))
    process = psutil.Process()
    with tempfile.TemporaryDirectory() as store:
        recorder = RequestRecorder(store, "service", limits=Limits(rate=1e9, cost=1.0))
        recorder.record(inputs, outputs)
        recorder.flush()
        before = process.memory_info().rss
        cpu = time.process_time()
        calls = []
        for number in range(requests):
            began = time.perf_counter()
            recorder.record(inputs, outputs)
            calls.append(time.perf_counter() - began)
            if number % 100 == 99:
                recorder.flush()
        spent = (time.process_time() - cpu) / requests
        growth = process.memory_info().rss - before
        recorder.close()
    return float(np.median(calls)), spent, float(growth)


def main() -> None:
    """Print the results beside the budget."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20, help="blocks of requests per arm")
    parser.add_argument("--requests", type=int, default=300, help="requests in a block")
    options = parser.parse_args()
    generator = np.random.default_rng(0)
    forms: dict[str, NDArray[Any]] = {
        "20 features": generator.normal(size=(1, 20)),
        "image 3 x 224 x 224": generator.random((1, 3, 224, 224), np.float32),
    }
    rows = []
    for name, inputs in forms.items():
        for threads in (1, 4):
            # A request is answered on one thread.
            with threadpool_limits(1, "blas"):
                found = compare(
                    inputs, rounds=options.rounds, requests=options.requests, threads=threads
                )
            middle, tails = found.medians, found.tails
            rows.append(
                [
                    name,
                    threads,
                    f"{middle['without'] * 1e3:.2f}",
                    f"{middle['again'] / middle['without'] - 1:+.1%}",
                    f"{middle['with'] / middle['without'] - 1:+.1%}",
                    f"{tails['without'] * 1e3:.2f}",
                    f"{tails['again'] / tails['without'] - 1:+.1%}",
                    f"{tails['with'] / tails['without'] - 1:+.1%}",
                    f"{found.share:.0%}",
                ]
            )
    headers = [
        "request",
        "threads",
        "median ms",
        "noise",
        "with",
        "p99 ms",
        "noise",
        "p99 with",
        "recorded",
    ]
    print(table(rows, headers))
    print(f"budget: p99 within {BUDGET:.0%}\n")
    rows = []
    for name, inputs in forms.items():
        call, spent, growth = per_request(inputs, 20_000 if inputs.size < 1000 else 1000)
        rows.append([name, f"{call * 1e6:.1f}", f"{spent * 1e6:.0f}", f"{growth / 2**20:.0f}"])
    print(table(rows, ["request", "call, us", "CPU of all threads, us", "memory, MiB"]))


if __name__ == "__main__":
    main()
