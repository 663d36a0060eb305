"""Training and judging cases, each in a process of its own."""

from __future__ import annotations

import logging
import multiprocessing
import os
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from benchmarks.faults.cases import Case
from benchmarks.faults.outcome import outcome_of
from benchmarks.faults.peers import PEER_CAPTURE, PEERS, Evidence
from benchmarks.faults.training import train
from benchmarks.faults.verdict import Verdict
from vinedresser.errors import VinedresserError
from vinedresser.rules.base import Rule, capture_for
from vinedresser.rules.judge import judge
from vinedresser.rules.registry import RULES, rules_from_table
from vinedresser.store.reading.reader import open_run

__all__ = ["Job", "judge_all", "judge_case"]


@dataclass(frozen=True)
class Job:
    """What to do with one case.

    Attributes:
        case: what to train.
        seed: of the training.
        rules: names of the rules to judge by; () for all, as they are by default.
        metrics: report accuracy or R² to the hook.
        peers: judge by the peers too.
        keep: directory to leave the run in; None: it is deleted.
    """

    case: Case
    seed: int
    rules: tuple[str, ...] = ()
    metrics: bool = True
    peers: bool = True
    keep: Path | None = None


def judge_all(jobs: Sequence[Job], at_once: int) -> Iterator[Verdict | VinedresserError]:
    """Yield verdicts as they are ready, or why there is none; the message names the case.

    Args:
        jobs: what to do.
        at_once: processes.
    """
    os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    context = multiprocessing.get_context("forkserver")
    # Each case is a fresh process, and none has to import torch again.
    context.set_forkserver_preload(
        ["benchmarks.faults.judging", "vinedresser.capture.torch_.adapter"]
    )
    pool = ProcessPoolExecutor(
        at_once, mp_context=context, initializer=_be_quiet, max_tasks_per_child=1
    )
    with pool:
        futures = {pool.submit(judge_case, job): job for job in jobs}
        for done in as_completed(futures):
            try:
                yield done.result()
            except VinedresserError as error:
                yield type(error)(f"{futures[done].case.id}: {error}")


def _be_quiet() -> None:
    """Leave out what torch and our hook warn of: the cases are meant to be wrong."""
    warnings.simplefilter("ignore")
    logging.getLogger("vinedresser").setLevel(logging.ERROR)


def judge_case(job: Job) -> Verdict:
    """Train a case to its end, whatever the rules would say, and judge what it left."""
    case = job.case
    rules = _rules(job.rules)
    with tempfile.TemporaryDirectory() as folder:
        run = (job.keep or Path(folder)) / f"{case.id}-{job.seed}"
        beside = (Path(folder, "peers"), PEER_CAPTURE) if job.peers else None
        begun = time.perf_counter()
        trained = train(
            case, run, capture_for(rules), seed=job.seed, metrics=job.metrics, further=beside
        )
        seconds = time.perf_counter() - begun
        outcome = outcome_of(case, trained)
        findings = tuple(judge(open_run(run), rules))
        peers = {}
        if beside:
            evidence = Evidence(case, trained, open_run(beside[0]))
            peers = {name: peer(evidence) for name, peer in PEERS.items()}
    return Verdict(
        case.id,
        job.seed,
        case.faulty,
        case.fault_class,
        case.steps,
        outcome,
        findings,
        peers,
        seconds,
    )


def _rules(names: tuple[str, ...]) -> list[Rule]:
    """Return the rules with their defaults."""
    return rules_from_table({name: {} for name in names or RULES})
