"""S3 as the store: `python -m benchmarks.s3`. Starts its own SeaweedFS server on loopback.

- upload: a spool of 8 MiB segments through the relay, compared to plain puts of the same size
  (sequentially and four at a time) and to one put per tensor.
- requests: requests of the relay per segment, counted at the client.
- visibility: time from the end of a training step until a reader of the store sees it, with and
  without urgency.
- reading one tensor over all steps of a run, from the store and from a directory.
- the same for a run of many small segments: step by step, and with `TensorView.values`; with the
  local store, and with 20 ms added to each request.
- requests of a reader that follows a silent run.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np

from benchmarks.measure import interleave, medians, table
from vinedresser.infra.supervise.relay import Relay
from vinedresser.objects import LocalStorage, open_storage
from vinedresser.objects.s3_client import s3_client
from vinedresser.processes import this_process
from vinedresser.store.reading.reader import open_run
from vinedresser.store.records import Heartbeat, heartbeat_key, write_record
from vinedresser.store.spool import Target
from vinedresser.store.writing.writer import RunWriter
from vinedresser.testing.runs import end_run, make_run, start_run, step_record
from vinedresser.testing.s3_server import BUCKET, seaweed

STEPS = 24
# Segments of a run with one step each.
SEGMENTS = 150
# Seconds for which the requests of an idle reader are counted.
IDLE = 10.0
# Tensor sizes per step, as in a network of ten layers: weights of 400 KB and three vectors of 1.6
# KB each.
SHAPES = [shape for _ in range(10) for shape in ((256, 400), (400,), (400,), (400,))]
# A training with a step every 0.1 s in which only the hook takes time.
TRAINER = """
import sys, time
import numpy as np
from vinedresser.capture import Hook
from vinedresser.store.collections.schedule import SaveConfig
hook = Hook(sys.argv[1], collections={"inputs": SaveConfig(every=1)})
print("ready", flush=True)
values = np.zeros((64, 1024), np.float32)
for step in range(int(sys.argv[2])):
    time.sleep(0.1)
    hook.step(inputs=values, loss=float(step))
hook.close()
"""


def place() -> str:
    """Return a URL at which no object exists yet."""
    return f"s3://{BUCKET}/{uuid.uuid4().hex}"


def seconds(work: Callable[[], object]) -> float:
    """Return the duration of a function call in seconds."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def full_spool(folder: Path) -> tuple[Path, int]:
    """Create the directory of a completed run; return it and the bytes of its segments."""
    generator = np.random.default_rng(0)
    tensors = {
        f"weights/{number}": generator.standard_normal(shape, np.float32)
        for number, shape in enumerate(SHAPES)
    }
    make_run(folder, [step_record(step, tensors=tensors) for step in range(STEPS)])
    return folder, sum(path.stat().st_size for path in folder.glob("segments/0/*"))


def put(objects: Iterable[bytes], *, max_concurrent: int = 1) -> None:
    """Put objects with some concurrency."""
    storage = open_storage(place())
    with ThreadPoolExecutor(max_concurrent) as pool:
        for done in [pool.submit(storage.put, str(n), [body]) for n, body in enumerate(objects)]:
            done.result()


def uploads(spool: Path, scratch: Path) -> dict[str, Callable[[], float]]:
    """Return the ways to upload the segments of a run."""
    segments = [path.read_bytes() for path in sorted(spool.glob("segments/0/*"))]
    sizes = [4 * math.prod(shape) for shape in SHAPES] * STEPS
    # The same bytes, except for the headers.
    tensors = [bytes(size) for size in sizes]
    return {
        "relay": lambda: timed_relay(spool, scratch),
        "put, segment by segment": lambda: seconds(lambda: put(segments)),
        "put, four segments at a time": lambda: seconds(lambda: put(segments, max_concurrent=4)),
        "put, tensor by tensor": lambda: seconds(lambda: put(tensors)),
        "put, four tensors at a time": lambda: seconds(lambda: put(tensors, max_concurrent=4)),
    }


def timed_relay(spool: Path, scratch: Path) -> float:
    """Return the duration of a relay, excluding the copy of the spool that it consumes."""
    folder = scratch / uuid.uuid4().hex
    shutil.copytree(spool, folder)
    target = Target(place(), "")
    one = Relay(folder, target, open_storage(target.url), print)

    def bring() -> None:
        one.claim()
        one.run()

    took = seconds(bring)
    shutil.rmtree(folder)
    return took


def counted(work: Callable[[], object]) -> Counter[str]:
    """Return the number of requests by kind that a function call sends."""
    counts: Counter[str] = Counter()

    def count(model: Any, **_: Any) -> None:
        counts[model.name] += 1

    events = s3_client().meta.events
    events.register("before-call.s3", count)
    work()
    events.unregister("before-call.s3", count)
    return counts


def visibility(steps: int, *, urgent: bool) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return the delay in seconds from the end of each training step until a reader sees it."""
    url = place()
    command = [sys.executable, "-c", TRAINER, url, str(steps)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as trainer:
        assert trainer.stdout is not None
        trainer.stdout.readline()
        seen = [time.time() - step.time for step in open_run(url).follow(urgent=urgent)]
    return np.array(seen)


def bring(folder: Path, url: str) -> None:
    """Copy the files of a run to the store."""
    storage = open_storage(url)
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            storage.put(path.relative_to(folder).as_posix(), [path.read_bytes()])


def reading(spool: Path) -> dict[str, Callable[[], float]]:
    """Return the ways to read one tensor over all steps."""
    url = place()
    bring(spool, url)
    name = "weights/4"

    def read(location: str | Path) -> None:
        found = list(open_run(location).tensor(name).values())
        assert len(found) == STEPS

    return {
        "S3": lambda: seconds(lambda: read(url)),
        "directory": lambda: seconds(lambda: read(spool)),
    }


def small_segments(folder: Path) -> str:
    """Create a run with one segment per step in the store; return its URL."""
    url = place()
    start_run(folder)
    with closing(RunWriter(LocalStorage(folder), 0)) as writer:
        for step in range(SEGMENTS):
            writer.add(step_record(step, tensors={"weights/0": np.full(400, step, np.float32)}))
            writer.flush()
    end_run(folder)
    bring(folder, url)
    return url


def over_all_steps(url: str, delay: float) -> dict[str, Callable[[], float]]:
    """Return the ways to read a tensor of many small segments, each including opening the run."""

    def one_by_one() -> None:
        tensor = open_run(url).tensor("weights/0")
        assert [tensor.value(step)[0] for step in tensor.steps().tolist()] == [*range(SEGMENTS)]

    def together() -> None:
        found = [value[0] for _, value in open_run(url).tensor("weights/0").values()]
        assert found == [*range(SEGMENTS)]

    def delayed(work: Callable[[], object]) -> float:
        def wait(**_: Any) -> None:
            time.sleep(delay)

        events = s3_client().meta.events
        events.register("before-send.s3", wait)
        took = seconds(work)
        events.unregister("before-send.s3", wait)
        return took

    return {"sequential": lambda: delayed(one_by_one), "now": lambda: delayed(together)}


def idle_requests(*, urgent: bool) -> float:
    """Return the requests per second of a reader that follows a silent run."""
    url = place()
    start_run(url)
    beat = Heartbeat(0, asdict(this_process()), last_step=-1, time=time.time())
    write_record(open_storage(url), beat, key=heartbeat_key(0))
    reader = Thread(target=lambda: list(open_run(url).follow(urgent=urgent)))

    def follow() -> None:
        reader.start()
        time.sleep(IDLE)

    counts = counted(follow)
    end_run(url)
    reader.join()
    return counts.total() / IDLE


def report(rounds: int, steps: int, scratch: Path) -> None:
    """Measure and print."""
    spool, size = full_spool(scratch / "spool")
    arms = medians(interleave(uploads(spool, scratch), rounds))
    alone = arms["put, segment by segment"]
    rows = [
        [name, f"{size / took / 1e6:.0f}", f"{alone / took:.2f}"] for name, took in arms.items()
    ]
    print(table(rows, ["upload", "MB/s", "x plain"]))
    single = arms["put, tensor by tensor"] / arms["relay"]
    print(f"relay against one put per tensor: {single:.1f} times as fast (goal 1.5)\n")
    segments = len(list(spool.glob("segments/0/*")))
    counts = counted(lambda: timed_relay(spool, scratch))
    rest = ", ".join(f"{name} {number}" for name, number in sorted(counts.items()))
    puts = counts["PutObject"]
    print(f"requests for {segments} segments and the end of the run: {rest}")
    print(f"puts per segment: {puts / segments:.2f} (goal: 2, and 2 a second)\n")
    rows = []
    for urgent in (False, True):
        seen = 1000 * visibility(steps, urgent=urgent)
        figures = [f"{np.percentile(seen, share):.0f}" for share in (50, 95)]
        rows.append(["urgent" if urgent else "cut every second", *figures])
    print(table(rows, ["visible after, ms", "p50", "p95"]))
    print("goal: p50 below 100 if urgent, otherwise within the pause of 500 after the cut\n")
    arms = medians(interleave(reading(spool), rounds))
    rows = [[name, f"{1000 * took:.0f}"] for name, took in arms.items()]
    print(table(rows, [f"one tensor, {STEPS} steps, from", "ms"]))
    url = small_segments(scratch / "small")
    for delay in (0.0, 0.02):
        arms = medians(interleave(over_all_steps(url, delay), rounds))
        ratio = arms["sequential"] / arms["now"]
        print(
            f"one tensor over all steps, {SEGMENTS} segments, {1000 * delay:.0f} ms a request "
            f"added: sequential {arms['sequential']:.2f} s, now {arms['now']:.2f} s "
            f"({ratio:.1f} times as fast)"
        )
    for urgent in (False, True):
        asked = idle_requests(urgent=urgent)
        print(f"a reader that follows while nothing comes, urgent {urgent}: {asked:.1f} requests/s")


def main() -> None:
    """Start the server, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=100, help="of the training that is followed")
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with (
        tempfile.TemporaryDirectory() as folder,
        seaweed(Path(folder, "server"), volumes=200) as server,
    ):
        os.environ |= server.environment
        os.environ["VINEDRESSER_SPOOL"] = str(Path(folder, "spools"))
        report(options.rounds, options.steps, Path(folder))


if __name__ == "__main__":
    main()
