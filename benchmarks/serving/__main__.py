"""Latency of a 5 ms model with and without the recorder of its requests.

Both arms serve for some seconds at a time, in turn, long enough for the recorder's thread to write
on its own as in a service. The time in which a thread waits for a processor is left out, since
other programs cause it. The difference of the 99th percentiles has an interval of 95 %, by a
bootstrap over the rounds (Efron & Tibshirani, "An Introduction to the Bootstrap", 1993), since
those of two equal arms differ by several per cent on a busy machine. Budget: within 2 %.

A figure with less noise is the bound. Recording delays a request by its own work in the caller's
thread, or if the recorder's thread runs at the same time ("met"; the kernel's accounting of that
thread says so). So the 99th percentile is at most that quantile of the plain latencies which leaves
out the share of requests that were met, plus the time of the own work.

The cost in the caller's thread is the median of single calls of `record`, and memory is the growth
of the resident set after many requests.
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
from scipy.stats import bootstrap
from threadpoolctl import threadpool_limits

from benchmarks.measure import table
from vinedresser.serving import Limits, RequestRecorder, watch

BUDGET = 0.02
SECONDS = 0.005
_SIZE = 192
# Bytes of inputs that a recorder keeps by default, and some more.
_FULL = 160 << 20
_RECORDER = "vinedresser-serving"
# Seconds at the start of a turn that are not counted: after a rest, more requests are recorded.
_SETTLING = 4.0


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


def scheduling(statistics: BinaryIO) -> tuple[int, int]:
    """Return the nanoseconds in which a thread ran, and in which it had no processor.

    Args:
        statistics: its open file ``schedstat`` of the kernel.
    """
    ran, waited, _ = os.pread(statistics.fileno(), 100, 0).split()
    return int(ran), int(waited)


class Served(NamedTuple):
    """Requests of one arm.

    Attributes:
        latencies: seconds of each request without the time in which its thread had no processor;
            float64 [requests].
        met: whether the recorder's thread ran meanwhile; bool [requests].
    """

    latencies: NDArray[np.float64]
    met: NDArray[np.bool_]


def serve(
    predict: Callable[[NDArray[Any]], Any], inputs: NDArray[Any], seconds: float, threads: int
) -> Served:
    """Serve requests on several threads for some seconds."""
    found: list[tuple[float, bool]] = []
    recorder = next(one.native_id for one in threading.enumerate() if one.name == _RECORDER)
    counted = time.perf_counter() + _SETTLING
    until = counted + seconds

    def work() -> None:
        with (
            open("/proc/thread-self/schedstat", "rb") as own,
            open(f"/proc/self/task/{recorder}/schedstat", "rb") as other,
        ):
            while (began := time.perf_counter()) < until:
                ran = scheduling(other)[0]
                waited = scheduling(own)[1]
                predict(inputs)
                passed = time.perf_counter() - began
                waited = scheduling(own)[1] - waited
                if began >= counted:
                    found.append((passed - waited * 1e-9, scheduling(other)[0] > ran))

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return Served(np.array([each for each, _ in found]), np.array([met for _, met in found]))


def warm_up(recorder: RequestRecorder, inputs: NDArray[Any]) -> None:
    """Fill the memory of inputs for alerts: from then on, it is used again and again."""
    for _ in range(_FULL // inputs.nbytes if inputs.nbytes > 1 << 16 else 100):
        recorder.record(inputs)
        recorder.flush()


class Compared(NamedTuple):
    """Requests of the arms, by round.

    Attributes:
        plain: requests without the recorder.
        recorded: requests with it.
        share: share of the requests that were recorded in the end.
    """

    plain: list[Served]
    recorded: list[Served]
    share: float

    def quantile(self, level: float) -> tuple[float, float]:
        """Return a quantile of the latencies without and with the recorder, in seconds."""
        plain, recorded = (
            float(np.quantile(np.concatenate([one.latencies for one in arm]), level))
            for arm in (self.plain, self.recorded)
        )
        return plain, recorded

    def interval(self, level: float) -> tuple[float, float]:
        """Return the interval of 95 % of the relative difference of a quantile."""

        def difference(rounds: NDArray[np.int64]) -> float:
            chosen = Compared(
                [self.plain[one] for one in rounds], [self.recorded[one] for one in rounds], 0.0
            )
            plain, recorded = chosen.quantile(level)
            return recorded / plain - 1

        found = bootstrap(
            (np.arange(len(self.plain)),),
            difference,
            vectorized=False,
            method="percentile",
            n_resamples=999,
            rng=0,
        ).confidence_interval
        return float(found.low), float(found.high)

    def met(self) -> float:
        """Return the share of the requests with the recorder that its thread met."""
        return float(np.concatenate([one.met for one in self.recorded]).mean())


def compare(inputs: NDArray[Any], *, rounds: int, seconds: float, threads: int) -> Compared:
    """Return the requests of both arms."""
    model = served_model()
    plain: list[Served] = []
    recorded: list[Served] = []
    with tempfile.TemporaryDirectory() as store:
        recorder = RequestRecorder(store, "service")
        watched = watch(model, recorder)
        warm_up(recorder, inputs)
        for turn in range(rounds):
            arms = [(model, plain), (watched, recorded)]
            for predict, found in arms if turn % 2 else arms[::-1]:
                recorder.flush()
                found.append(serve(predict, inputs, seconds, threads))
        share = recorder.share
        recorder.close()
    return Compared(plain, recorded, share)


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


def row(compared: Compared, call: float) -> list[str]:
    """Return the cells of a comparison.

    Args:
        compared: the requests.
        call: seconds of the recorder in the caller's thread.
    """
    middle, with_middle = compared.quantile(0.5)
    tail, with_tail = compared.quantile(0.99)
    low, high = compared.interval(0.99)
    met = compared.met()
    bound = (compared.quantile(min(0.99 + met, 1.0))[0] + call) / tail - 1
    return [
        f"{middle * 1e3:.2f}",
        f"{with_middle / middle - 1:+.1%}",
        f"{tail * 1e3:.2f}",
        f"{with_tail / tail - 1:+.1%}",
        f"{low:+.1%} to {high:+.1%}",
        f"{met:.2%}",
        f"{bound:+.1%}",
        f"{compared.share:.0%}",
    ]


def main() -> None:
    """Print the results beside the budget."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=12, help="turns of each arm (default: 12)")
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="seconds of a turn (default: 10)"
    )
    parser.add_argument(
        "--threads", type=int, nargs="+", default=[1, 4], help="threads that serve (default: 1 4)"
    )
    options = parser.parse_args()
    generator = np.random.default_rng(0)
    forms: dict[str, NDArray[Any]] = {
        "20 features": generator.normal(size=(1, 20)),
        "image 3 x 224 x 224": generator.random((1, 3, 224, 224), np.float32),
    }
    costs, rows = [], []
    for name, inputs in forms.items():
        call, spent, growth = per_request(inputs, 20_000 if inputs.size < 1000 else 1000)
        costs.append([name, f"{call * 1e6:.1f}", f"{spent * 1e6:.0f}", f"{growth / 2**20:.0f}"])
        for threads in options.threads:
            # A request is answered on one thread.
            with threadpool_limits(1, "blas"):
                found = compare(
                    inputs, rounds=options.rounds, seconds=options.seconds, threads=threads
                )
            rows.append([name, str(threads), *row(found, call)])
    headers = ["request", "threads", "median ms", "with", "p99 ms", "with", "95 %"]
    print(table(rows, [*headers, "met", "bound", "recorded"]))
    print(f"budget: p99 within {BUDGET:.0%}\n")
    print(table(costs, ["request", "call, us", "CPU of all threads, us", "memory, MiB"]))


if __name__ == "__main__":
    main()
