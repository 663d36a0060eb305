"""Judging of stored runs, without training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from benchmarks.faults.processes import in_processes
from benchmarks.faults.verdict import Outcome, Verdict
from benchmarks.world.peers import peer_alarms
from benchmarks.world.stored import StoredCase
from benchmarks.world.verification import outcomes
from vinedresser.rules.judge import judge
from vinedresser.rules.presets import preset_table
from vinedresser.rules.registry import rules_from_table
from vinedresser.rules.stated.good_runs import GoodRuns
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import open_run

__all__ = ["judge_stored", "verdict_of"]


def judge_stored(
    cases: Sequence[StoredCase],
    processes: int,
    preset: str = "default",
    good: Mapping[str, Sequence[StoredCase]] | None = None,
) -> Iterator[Verdict]:
    """Yield the verdict on each case as it is made.

    Args:
        cases: trained cases; a faulty one is counted if its healthy twin is among them.
        processes: number of concurrent processes.
        preset: preset of the rules.
        good: by pair the healthy trainings that each of its cases is compared with.
    """
    beside = good or {}
    jobs = [
        (one, outcome, preset, beside.get(one.case.pair, ()))
        for one, outcome in zip(cases, outcomes(cases), strict=True)
    ]
    # The longest first, so that no process is left with one at the end.
    jobs.sort(key=lambda job: -job[0].seconds)
    for _, done in in_processes(
        _judge, jobs, processes, preload=["benchmarks.world.judging"], fresh=False
    ):
        yield done.result()


def _judge(job: tuple[StoredCase, Outcome, str, Sequence[StoredCase]]) -> Verdict:
    return verdict_of(*job)


def verdict_of(
    stored: StoredCase,
    outcome: Outcome,
    preset: str = "default",
    good: Sequence[StoredCase] = (),
) -> Verdict:
    """Judge the runs of a case one after the other, as they were trained.

    The steps of a second run follow those of the first.

    Args:
        stored: the case.
        outcome: its outcome.
        preset: preset of the rules.
        good: healthy trainings that it is compared with.
    """
    table = preset_table(preset)
    findings: list[Finding] = []
    steps = 0
    for number, place in enumerate(stored.runs):
        run = open_run(place)
        there = {one.case.id: one.runs[number] for one in good if number < len(one.runs)}
        if there:
            kept = GoodRuns.of({name: open_run(one) for name, one in there.items()})
            table["reference"] = {"good": kept.to_json()}
        rules = rules_from_table(table)
        findings += [
            replace(one, step=one.step + steps, since=one.since + steps)
            for one in judge(run, rules)
        ]
        steps += len(run.steps())
    if not steps:
        outcome = replace(outcome, as_expected=False)
    return Verdict(
        stored.case.id,
        stored.case.seed,
        stored.case.faulty,
        stored.case.fault if stored.case.faulty else "healthy",
        max(steps, 1),
        outcome,
        tuple(findings),
        peer_alarms(stored),
        stored.seconds,
        stored.ending.epoch,
    )
