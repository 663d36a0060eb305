"""All queries of a training together keep to a share of its time."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise

import pytest

from tests.queries.offering import event
from vinedresser.cli.views.answers import answer_view
from vinedresser.queries.answer import Answer
from vinedresser.queries.query import Query
from vinedresser.queries.table import SHARE, StreamTable

STEP = 0.02
LOOK = 0.004
NAMES = [f"metrics/{letter}" for letter in "abcde"]
# More than any training has.
OFTEN = 1e9


def slowly(value: float) -> Callable[[], float]:
    """Return a value that takes a time of computing to read."""

    def read() -> float:
        until = time.thread_time() + LOOK
        while time.thread_time() < until:
            pass
        return value

    return read


def asked(
    texts: list[str], steps: int, *, rate: float | None = OFTEN, step: float = STEP
) -> dict[str, list[Answer]]:
    """Return the answers of a training with steps of a length in seconds, by query."""
    now = [0.0]
    table = StreamTable(lambda: now[0])
    found: dict[str, list[Answer]] = {text: [] for text in texts}
    for text, answers in found.items():
        table.subscribe(Query.parse(text), answers.append, rate=rate)
    for number in range(steps):
        now[0] = number * step
        armed = table.arm("train")
        table.observe(event({name: slowly(float(number)) for name in NAMES}, number), armed)
    return found


@pytest.mark.thorough
def test_queries_that_take_too_long_together_look_less_often_and_say_so() -> None:
    found = asked(NAMES, 200)
    looks = [answer.step for answer in found[NAMES[0]]]
    spent = len(looks) * len(NAMES) * LOOK
    assert spent < 0.25 + SHARE * 200 * STEP + 2 * len(NAMES) * LOOK
    assert 10 < len(looks) < 60
    for answers in found.values():
        # They look at the same steps, and nothing is left out in silence.
        assert [one.step for one in answers] == looks
        assert [one.value for one in answers] == looks
        gaps = [after - before - 1 for before, after in pairwise(looks)]
        assert [one.thinned for one in answers[1:]] == gaps
        assert [one.dropped for one in answers[1:]] == gaps
    late = found[NAMES[0]][-1]
    assert f"thinned: {late.thinned} not looked at" in str(answer_view(late)[0])
    first = found[NAMES[0]][0]
    assert Answer.from_json(late.to_json(brief=True), first).thinned == late.thinned > 0


def test_expensive_steps_leave_rare_evaluations_and_events_to_others() -> None:
    now = [0.0]
    table = StreamTable(lambda: now[0])
    answers: dict[str, list[Answer]] = {"step": [], "evaluation": [], "validated": []}
    for every, found in answers.items():
        name = NAMES[0] if every == "step" else "metrics/rare"
        table.subscribe(Query.parse(name, every), found.append, rate=OFTEN)
    for step in range(300):
        now[0] = step * LOOK
        table.observe(event({NAMES[0]: slowly(1.0)}, step), table.arm("train"))
        if step % 50 == 49:
            rare = event({"metrics/rare": 2.0}, step, kind="evaluation", mode="eval")
            table.observe(rare, table.arm("eval"))
            table.observe(event({"metrics/rare": 3.0}, step, kind="validated"))
    assert len(answers["step"]) < 150
    assert [one.value for one in answers["evaluation"]] == [2.0] * 6
    assert [one.value for one in answers["validated"]] == [3.0] * 6


def test_cheap_queries_look_at_everything() -> None:
    [answers] = asked(NAMES[:1], 50, step=1.0).values()
    assert [answer.step for answer in answers] == list(range(50))
    assert not any(answer.thinned or answer.dropped for answer in answers)


@pytest.mark.thorough
def test_a_query_without_a_rate_looks_at_every_step_whatever_it_costs() -> None:
    found = asked(NAMES, 60, rate=None)
    for answers in found.values():
        assert [answer.step for answer in answers] == list(range(60))


@pytest.mark.thorough
def test_long_windows_are_thinned_within_but_sums_and_counts_are_of_all_steps() -> None:
    folds = {"mean": "", "sum": " reduce sum", "count": " reduce count"}
    texts = {
        fold: f"{NAMES[place]}{words} every 10 steps"
        for place, (fold, words) in enumerate(folds.items())
    }
    found = asked(list(texts.values()), 400)
    means = found[texts["mean"]]
    assert any(mean.events < 10 for mean in means)
    for before, one in pairwise(means):
        windows = one.step // 10 - before.step // 10
        assert one.dropped == windows - 1
        assert one.events + one.thinned == 10 * windows
    for fold in ("sum", "count"):
        assert found[texts[fold]]
        assert {one.events for one in found[texts[fold]]} == {10}
        assert any(one.dropped for one in found[texts[fold]])
    for one in found[texts["sum"]]:
        assert one.value == sum(range(one.since, one.step + 1))
