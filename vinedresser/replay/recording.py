"""What a replay found, as a record for readers."""

from __future__ import annotations

import time

from vinedresser.replay.results import Bisection, Comparison, Located
from vinedresser.replay.what_if.results import WhatIf, course_words
from vinedresser.snapshots.replay_record import ReplayRecord, TriedChange


def replay_record(
    comparison: Comparison,
    located: Located | None = None,
    bisection: Bisection | None = None,
    tried: WhatIf | None = None,
    lasting: str = "",
) -> ReplayRecord:
    """Return the record of a replay.

    Args:
        comparison: how it compares with the training.
        located: the operation that breaks the step, if it was looked for and found.
        bisection: the samples, likewise.
        tried: the changes that were tried.
        lasting: whether what broke the step lasts, in words; "" for another step.
    """
    where = located.place if located is not None else None
    return ReplayRecord(
        time=time.time(),
        same=comparison.told("loss"),
        lasting=lasting,
        operation="" if located is None else located.words,
        place="" if where is None or not where.words else f"{where.words}: {where.text}",
        samples="" if bisection is None else bisection.words,
        tried="" if tried is None else tried.conclusion,
        trials=[]
        if tried is None
        else [
            TriedChange(trial.change, course_words(trial.course), tried.verdict(trial)).to_json()
            for trial in tried.trials
        ],
        symptom="" if tried is None else tried.symptom,
        cures={} if tried is None else {cure.kind: list(cure.values) for cure in tried.cures},
    )
