"""Lives of the drift benchmark that a file has are not lived again."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.drift.lives import Scale
from benchmarks.drift.results import Alarms, Job, finished, jobs_of, merged

WORLDS = [("a", Scale(50, 30, 5, 5)), ("b", Scale(20, 0, 5, 5))]


def lived(job: Job) -> Alarms:
    """Return which lives these are, and note that they were lived."""
    with Path(job.part).open("a") as stream:
        stream.write(f"{job.world}{job.number}\n")
    return {"vinedresser": np.arange(job.scale.monitors) + 100 * job.number}


def test_a_run_continues_with_the_lives_that_are_missing(tmp_path: Path) -> None:
    log, file = tmp_path / "log", tmp_path / "lives.jsonl"
    jobs = jobs_of(str(log), WORLDS)
    # Each world has some lives before any has more.
    assert [(job.world, job.scale.monitors, job.scale.peers) for job in jobs] == [
        ("a", 20, 20),
        ("b", 20, 0),
        ("a", 20, 10),
        ("a", 10, 0),
    ]
    begun = merged(finished(jobs[:2], lived, file, 1))
    assert merged(finished(jobs, lived, file, 0)).keys() == begun.keys()
    whole = merged(finished(jobs, lived, file, 1))
    again = merged(finished(jobs, lived, file, 0))
    assert log.read_text().split() == ["a0", "b0", "a1", "a2"]
    for found in (whole, again):
        assert found["a"]["vinedresser"].tolist() == [
            *range(20),
            *range(100, 120),
            *range(200, 210),
        ]
