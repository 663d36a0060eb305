"""Seconds until the page of a large run answers, and until a query to it is answered.

    python -m benchmarks.watching
    python -m benchmarks.watching --layers 200 --steps 100000 --every 1

Writes a run with our writer, serves it like `vinedresser watch`, and measures the first request,
the next ones, the time until the whole page is drawn, the state at a step of the slider, and
`norm(gradients) by layer` at all steps.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from starlette.testclient import TestClient

from vinedresser import ask
from vinedresser.store.reading.run_store import RunStore
from vinedresser.store.step_record import StepRecord
from vinedresser.testing.runs import make_run, step_record
from vinedresser.watching.access import Access
from vinedresser.watching.application import application
from vinedresser.watching.site import Site
from vinedresser.watching.watched_store import WatchedStore

_PORT = 8000


def records(layers: int, steps: int, every: int) -> Iterator[StepRecord]:
    """Yield steps with a loss, and every so often the gradient norms of all layers."""
    random = np.random.default_rng(0)
    names = [f"gradients/block{layer}.weight" for layer in range(layers)]
    for step in range(steps):
        norms = random.lognormal(size=layers).tolist() if step % every == 0 else []
        reductions = {name: {"l2": norm} for name, norm in zip(names, norms, strict=False)}
        yield step_record(step, scalars={"losses/loss": random.random()}, reductions=reductions)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Time the page of a large run.")
    parser.add_argument("--layers", type=int, default=200)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--every", type=int, default=1, help="steps between gradient norms")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        make_run(Path(folder) / "large", records(options.layers, options.steps, options.every))
        store = WatchedStore(RunStore(Path(folder)), single=False)
        access = Access(application(store), Site(_PORT))
        client = TestClient(access, base_url=f"http://127.0.0.1:{_PORT}")
        client.get(access.address)
        began = time.perf_counter()
        client.get("/run/large")
        print(f"first request        {time.perf_counter() - began:8.3f} s")
        waits = []
        while True:
            asked = time.perf_counter()
            state = client.get("/run/large/view").json()["state"]
            waits.append(time.perf_counter() - asked)
            if state != "reading":
                break
        print(f"whole page drawn     {time.perf_counter() - began:8.3f} s")
        print(f"requests meanwhile   {max(waits):8.3f} s at most")
        waits = []
        for _ in range(20):
            asked = time.perf_counter()
            client.get("/run/large")
            waits.append(time.perf_counter() - asked)
        print(f"next requests        {statistics.median(waits):8.3f} s median, ", end="")
        print(f"{max(waits):.3f} s at most")
        waits = []
        for step in range(0, options.steps, max(1, options.steps // 20)):
            asked = time.perf_counter()
            client.get(f"/run/large/moment?step={step}")
            waits.append(time.perf_counter() - asked)
        print(f"slider               {statistics.median(waits):8.3f} s median, ", end="")
        print(f"{max(waits):.3f} s at most")
        began, used = time.perf_counter(), time.process_time()
        count = sum(1 for _ in ask(Path(folder) / "large", "norm(gradients) by layer"))
        print(f"query                {time.perf_counter() - began:8.3f} s, ", end="")
        print(f"{time.process_time() - used:.3f} s of processor time, {count:,} answers")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory          {peak:8.0f} MiB")


if __name__ == "__main__":
    main()
