"""Training and judging of cases, each in a separate process."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.faults.cases import Case
from benchmarks.faults.experiments import Experiment, experiment_with
from benchmarks.faults.outcome import outcome_of
from benchmarks.faults.peers import PEER_CAPTURE, PEERS, Evidence
from benchmarks.faults.processes import in_processes
from benchmarks.faults.training import train
from benchmarks.faults.verdict import Verdict
from vinedresser.errors import VinedresserError
from vinedresser.rules.base import Rule, capture_for
from vinedresser.rules.judge import judge
from vinedresser.rules.registry import RULES, rules_from_table
from vinedresser.store.reading.reader import open_run

__all__ = ["Job", "judge_all", "judge_case", "try_all"]


@dataclass(frozen=True)
class Job:
    """A case to train and judge.

    Attributes:
        case: case to train.
        seed: seed of the training.
        rules: names of the rules to judge by; () for all default rules.
        metrics: whether to report accuracy or R² to the hook.
        peers: whether to judge by the peers, too.
        keep: directory to keep the run in; None to delete it.
        what_if: whether to try changes from the first step, too.
    """

    case: Case
    seed: int
    rules: tuple[str, ...] = ()
    metrics: bool = True
    peers: bool = True
    keep: Path | None = None
    what_if: bool = False


def judge_all(jobs: Sequence[Job], max_concurrent: int) -> Iterator[Verdict | VinedresserError]:
    """Yield a verdict or an error, which names the case, as each job completes.

    Args:
        jobs: cases to train and judge.
        max_concurrent: number of processes.
    """
    preload = ["benchmarks.faults.judging", "vinedresser.capture.torch_.adapter"]
    for job, done in in_processes(judge_case, jobs, max_concurrent, preload=preload):
        try:
            yield done.result()
        except VinedresserError as error:
            yield type(error)(f"{job.case.id}: {error}")


def try_all(jobs: Sequence[Job], max_concurrent: int) -> Iterator[Experiment]:
    """Yield the trials of each case as they complete, without a training of the case.

    Args:
        jobs: the cases.
        max_concurrent: number of processes.
    """
    preload = ["benchmarks.faults.judging", "vinedresser.capture.torch_.adapter"]
    # Trials are short beside the start of a process.
    for _, done in in_processes(_try_case, jobs, max_concurrent, preload=preload, fresh=False):
        yield done.result()


def judge_case(job: Job) -> Verdict:
    """Train a case to its end, regardless of the rules, and judge the run."""
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
        experiment=experiment_with(case, job.seed) if job.what_if else None,
    )


def _try_case(job: Job) -> Experiment:
    return experiment_with(job.case, job.seed)


def _rules(names: tuple[str, ...]) -> list[Rule]:
    """Return the rules with their defaults."""
    return rules_from_table({name: {} for name in names or RULES})
