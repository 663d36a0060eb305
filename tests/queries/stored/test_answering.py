"""Queries to stored runs give what numpy gives for the stored arrays."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.queries.offering import event
from tests.store.counting_storage import CountingStorage
from vinedresser.errors import ConfigError, QueryError, UnknownTensor
from vinedresser.objects import open_storage
from vinedresser.queries.answer import Answer
from vinedresser.queries.asking import ask
from vinedresser.queries.query import Query
from vinedresser.queries.standing import StandingQuery
from vinedresser.queries.stored.saving import saved
from vinedresser.queries.stored.streams import streams
from vinedresser.store.reading.reader import Run, open_run
from vinedresser.store.step_record import StepRecord
from vinedresser.store.writing.writer import RunWriter
from vinedresser.testing.runs import end_run, make_run, start_run, step_record

STEPS = 240
LAYERS = ("conv1.weight", "conv1.bias", "fc.weight")


def gradient(step: int, layer: str, rank: int = 0) -> Any:
    random = np.random.default_rng([step, LAYERS.index(layer), rank])
    shape = {"conv1.weight": (4, 3, 2), "conv1.bias": (4,), "fc.weight": (5, 4)}[layer]
    return random.normal(size=shape).astype(np.float32)


def loss(step: int, rank: int = 0) -> float:
    return float(np.random.default_rng([step, 7, rank]).gamma(2.0))


def records(rank: int = 0) -> Iterator[StepRecord]:
    """Yield steps with a loss each, gradients every third, and an evaluation every 40 steps."""
    for step in range(STEPS):
        tensors = {f"gradients/{one}": gradient(step, one, rank) for one in LAYERS}
        scalars = {"losses/train": loss(step, rank), "optimizer_state/lr": 0.1 / (1 + step)}
        yield step_record(
            step,
            tensors=tensors if step % 3 == 0 else {},
            scalars={**scalars, "metrics/epoch": float(step // 50)},
            at=1e9 + step / 4,
        )
        if step % 40 == 39:
            yield step_record(
                step + 1,
                mode="eval",
                scalars={"losses/val": loss(step, 9)},
                at=1e9 + step / 4 + 0.1,
            )


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return make_run(tmp_path_factory.mktemp("stored") / "run", records(0), records(1))


def rank_0(run: Run, query: str, every: str | None = None) -> list[Answer]:
    return list(ask(run, query, every, ranks=[0]))


def norm(step: int) -> float:
    return float(np.sqrt(sum((gradient(step, one).astype(float) ** 2).sum() for one in LAYERS)))


@pytest.mark.thorough
@pytest.mark.parametrize("length", [1, 2, 7, 10, 60, 240, 1000])
@pytest.mark.parametrize("fold", ["mean", "max", "min", "sum", "std", "last", "count"])
def test_windows_of_steps(run: Run, length: int, fold: str) -> None:
    functions = {"last": lambda x: x[-1], "count": len}
    function: Any = functions.get(fold) or getattr(np, fold)
    found = rank_0(run, f"loss reduce {fold}", f"{length} steps")
    groups = [range(first, min(first + length, STEPS)) for first in range(0, STEPS, length)]
    expected = [function([loss(step) for step in group]) for group in groups]
    np.testing.assert_allclose([one.value for one in found], expected, rtol=1e-12, atol=1e-15)
    assert [(one.since, one.step) for one in found] == [(one[0], one[-1]) for one in groups]


@pytest.mark.parametrize("length", [3, 10, 48])
def test_steps_without_the_tensors_do_not_count(run: Run, length: int) -> None:
    found = rank_0(run, "norm(gradients) reduce max", f"{length} steps")
    groups: dict[int, list[int]] = {}
    for step in range(0, STEPS, 3):
        groups.setdefault(step // length, []).append(step)
    expected = [max(norm(step) for step in group) for group in groups.values()]
    np.testing.assert_allclose([one.value for one in found], expected, rtol=1e-6)
    assert [one.events for one in found] == [len(group) for group in groups.values()]


def test_windows_of_epochs_seconds_evaluations_and_the_whole_run(run: Run) -> None:
    every = [loss(step) for step in range(STEPS)]
    epochs = rank_0(run, "loss", "epoch")
    means = [np.mean(every[i : i + 50]) for i in range(0, 250, 50)]
    np.testing.assert_allclose([epoch.value for epoch in epochs], means)
    # A window ends with the first event at or after its end.
    seconds = rank_0(run, "loss", "2 seconds")
    np.testing.assert_allclose(
        [second.value for second in seconds],
        [np.mean(every[i : i + 9]) for i in range(0, STEPS, 9)],
    )
    evaluations = rank_0(run, "losses/val", "evaluation")
    assert [evaluation.value for evaluation in evaluations] == [
        loss(step, 9) for step in range(39, STEPS, 40)
    ]
    assert {evaluation.mode for evaluation in evaluations} == {"eval"}
    [whole] = rank_0(run, "loss", "flush")
    assert whole.value == pytest.approx(np.mean(every))
    assert whole.ended


def test_results_by_layer_and_tensor(run: Run) -> None:
    found = rank_0(run, "norm(gradients) by layer")
    assert [one.step for one in found] == list(range(0, STEPS, 3))
    for answer in found:
        pairs = [gradient(answer.step, one).astype(float) for one in LAYERS]
        sums = [(pair**2).sum() for pair in pairs]
        expected = {"conv1": np.sqrt(sums[0] + sums[1]), "fc": np.sqrt(sums[2])}
        assert answer.value == pytest.approx(expected)
    [last] = rank_0(run, "mean(abs(gradients)) by tensor every flush reduce last")
    assert last.value == pytest.approx(
        {one: np.abs(gradient(237, one)).mean() for one in LAYERS}, rel=1e-5
    )


def test_conditions_choose_steps(run: Run) -> None:
    found = rank_0(run, "norm(gradients) where loss > 2")
    steps = [step for step in range(0, STEPS, 3) if loss(step) > 2]
    assert [one.step for one in found] == steps
    np.testing.assert_allclose([one.value for one in found], [norm(s) for s in steps], rtol=1e-6)


def test_names_of_a_training_are_found_in_the_store(run: Run) -> None:
    [rate] = rank_0(run, "lr reduce min every flush")
    assert rate.value == 0.1 / STEPS
    # The first step has no duration.
    pace = rank_0(run, "step_seconds")
    assert [one.step for one in pace] == list(range(1, STEPS))
    assert all(one.value == pytest.approx(0.25) for one in pace)
    assert [one.value for one in rank_0(run, "step")] == list(range(STEPS))


@pytest.mark.parametrize("every", ["step", "7 steps", "3 seconds", "evaluation", "flush"])
@pytest.mark.parametrize(
    "query",
    [
        "loss reduce quantile(0.3)",
        "norm(gradients) by layer",
        "max(abs(gradients)) by tensor reduce max",
        "top(gradients, 3)",
        "histogram(gradients/fc.weight, 5, -2, 2)",
        "mean(gradients/conv1.weight) by unit",
        "norm(gradients) / loss where loss > 1",
        "lr * step",
    ],
)
def test_the_answers_are_those_of_a_training(run: Run, query: str, every: str) -> None:
    if every == "evaluation":
        query = "losses/val * 2"
    standing = StandingQuery(Query.parse(query, every), rate=None)
    expected = []
    for record in records():
        values = {name: one.data.reshape(one.shape) for name, one in record.tensors.items()}
        names = {"lr": record.scalars.get("optimizer_state/lr"), "step": float(record.step)}
        kind = "step" if record.mode == "train" else "evaluation"
        offered = {**record.scalars, **values, **{k: v for k, v in names.items() if v is not None}}
        one = event(offered, record.step, kind=kind, mode=record.mode, time=record.time)
        expected += standing.observe(one)
    last = standing.flush()
    expected += [] if last is None else [replace(last, ended=True)]
    assert rank_0(run, query, every) == expected


def test_each_rank_answers_for_itself(run: Run) -> None:
    found = list(ask(run, "loss", "60 steps"))
    assert [(one.step, one.rank) for one in found] == [
        (last, rank) for last in range(59, STEPS, 60) for rank in (0, 1)
    ]
    for one in found:
        mean = np.mean([loss(step, one.rank) for step in range(one.since, one.step + 1)])
        assert one.value == pytest.approx(mean)


def test_stored_statistics_replace_tensors(tmp_path: Path) -> None:
    def statistics(step: int) -> dict[str, dict[str, float]]:
        found = {}
        for name in LAYERS:
            x = gradient(step, name).astype(float)
            found[f"gradients/{name}"] = {
                "l2": float(np.linalg.norm(x)),
                "abs_mean": float(np.abs(x).mean()),
                "std": float(x.std()),
                "mean": float(x.mean()),
                "max": float(x.max()),
            }
        return found

    made = make_run(
        tmp_path / "run", [step_record(step, reductions=statistics(step)) for step in range(6)]
    )
    found = list(ask(made, "norm(gradients)"))
    np.testing.assert_allclose([one.value for one in found], [norm(s) for s in range(6)], rtol=1e-6)
    for text, function in (
        ("mean(abs(gradients)) by tensor", lambda x: np.abs(x).mean()),
        ("var(gradients) by tensor", np.var),
        ("std(gradients) by tensor", np.std),
    ):
        *_, last = ask(made, text)
        expected = {one: float(function(gradient(5, one).astype(float))) for one in LAYERS}
        assert last.value == pytest.approx(expected, rel=1e-6), text
    *_, largest = ask(made, "max(gradients) - 1")
    assert largest.value == pytest.approx(max(gradient(5, one).max() for one in LAYERS) - 1)
    for text, says in (
        ("quantile(gradients, 0.5)", "only its abs_mean, l2, max, mean, std were stored"),
        ("min(gradients)", "the query needs the tensor or its min"),
        ("norm(gradients * 2)", "needs the tensor"),
        ("norm(gradients) by unit", "needs the tensor"),
        ("size(gradients)", "were stored"),
    ):
        with pytest.raises(QueryError, match=says):
            list(ask(made, text))
    [unsized] = ask(made, "mean(gradients)")
    assert unsized.ended
    assert "by tensor" in str(unsized.error)


def test_tensors_stored_now_and_then_beside_statistics(tmp_path: Path) -> None:
    def record(step: int) -> StepRecord:
        full = {f"gradients/{one}": gradient(step, one) for one in LAYERS}
        norms = {name: {"l2": float(np.linalg.norm(x))} for name, x in full.items()}
        return step_record(step, tensors=full if step % 4 == 0 else {}, reductions=norms)

    made = make_run(tmp_path / "run", [record(step) for step in range(12)])
    assert [one.step for one in ask(made, "norm(gradients)")] == list(range(12))
    maxima = list(ask(made, "max(gradients)"))
    assert [one.step for one in maxima] == [0, 4, 8]
    assert [one.value for one in maxima] == [
        max(float(gradient(step, one).max()) for one in LAYERS) for step in (0, 4, 8)
    ]
    # Their sizes are known from the steps with tensors.
    assert [one.value for one in ask(made, "size(gradients) every 5 steps")] == [48, 48, 48]


def test_steps_with_some_tensors_of_a_collection_do_not_count(tmp_path: Path) -> None:
    def record(step: int) -> StepRecord:
        names = LAYERS if step % 5 == 0 else LAYERS[:1]
        return step_record(
            step, tensors={f"gradients/{name}": gradient(step, name) for name in names}
        )

    made = make_run(tmp_path / "run", [record(step) for step in range(11)])
    assert [one.step for one in ask(made, "norm(gradients)")] == [0, 5, 10]
    assert [one.step for one in ask(made, "norm(gradients/conv1.weight)")] == list(range(11))


def test_half_precision_and_samples(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    batches = []
    for _ in range(4):
        outputs = random.normal(size=(32, 3)).astype(ml_dtypes.bfloat16)
        batches.append((outputs, random.integers(0, 3, 32)))
    made = make_run(
        tmp_path / "run",
        [
            step_record(step, tensors={"predictions/p": predictions, "labels/y": labels})
            for step, (predictions, labels) in enumerate(batches)
        ],
    )
    right = [float((p.astype(np.float32).argmax(1) == y).mean()) for p, y in batches]
    assert [one.value for one in ask(made, "accuracy(labels, predictions)")] == right
    chosen = [float(p.astype(np.float32)[y == 1].mean()) for p, y in batches]
    found = [one.value for one in ask(made, "mean(predictions) where labels == 1")]
    assert found == pytest.approx(chosen, rel=1e-5)


def test_only_what_the_query_needs_is_read(tmp_path: Path) -> None:
    def record(step: int) -> StepRecord:
        big = {f"weights/{name}": np.ones((100, 100)) for name in ("a", "b")}
        return step_record(step, tensors=big, scalars={"losses/train": float(step)})

    make_run(tmp_path / "run", [record(step) for step in range(20)])
    storage = CountingStorage(tmp_path / "run")
    opened = open_run(storage)
    opened.steps()
    before = storage.octets
    assert len(list(ask(opened, "loss"))) == 20
    assert storage.octets - before < 10_000
    assert len(list(ask(opened, "norm(weights/a) where step == 7"))) == 1
    assert storage.octets - before < 100_000


def test_damage_is_left_out_and_reported(tmp_path: Path) -> None:
    values = [np.full(999, float(step)) for step in range(5)]
    made = [step_record(step, tensors={"weights/w": one}) for step, one in enumerate(values)]
    make_run(tmp_path / "run", made)
    [segment] = (tmp_path / "run" / "segments" / "0").iterdir()
    content = bytearray(segment.read_bytes())
    place = content.index(values[3].tobytes())
    content[place] ^= 1
    segment.write_bytes(bytes(content))
    opened = open_run(tmp_path / "run")
    assert [one.value for one in ask(opened, "max(weights)")] == [0, 1, 2, 4]
    [problem] = opened.problems
    assert "weights/w of train step 3" in problem


@pytest.mark.parametrize(
    ("query", "error", "says"),
    [
        ("norm(gradiants)", UnknownTensor, "did you mean gradients"),
        ("norm(gradient)", UnknownTensor, "did you mean gradients, gradients/conv1.weight"),
        ("loss per sample", UnknownTensor, "no such name"),
        ("loss every rollout", ConfigError, "does not store events"),
        ("losses/val", QueryError, "was not stored while training, only in evaluations: ask every"),
        ("lr every evaluation", QueryError, "only while training"),
        ("loss +", ConfigError, "not an expression"),
    ],
)
def test_a_query_without_an_answer_says_why(
    run: Run, query: str, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        list(ask(run, query))


def test_a_rank_that_does_not_exist(run: Run) -> None:
    with pytest.raises(ConfigError, match=r"rank 2: .* has the ranks 0 to 1"):
        ask(run, "loss", ranks=[2])


def test_a_rank_that_has_stored_nothing(tmp_path: Path) -> None:
    made = make_run(tmp_path / "run", [step_record(0, scalars={"losses/a": 1.0})], [])
    assert [one.value for one in ask(made, "loss")] == [1.0]
    with pytest.raises(ConfigError, match=r"rank 1: .* has stored nothing of it"):
        ask(made, "loss", ranks=[1])


def test_epochs_that_were_not_stored(tmp_path: Path) -> None:
    made = make_run(tmp_path / "run", [step_record(0, scalars={"losses/train": 1.0})])
    with pytest.raises(ConfigError, match="has not stored its epochs"):
        ask(made, "loss", "epoch")


def test_following_waits_for_new_steps_and_ends_with_the_run(tmp_path: Path) -> None:
    start_run(tmp_path / "run")
    writer = RunWriter(open_storage(tmp_path / "run"), 0)
    writer.add(step_record(0, scalars={"losses/train": 0.0}))
    writer.flush()
    found = ask(tmp_path / "run", "loss every 2 steps", follow=True)
    for step in range(1, 5):
        writer.add(step_record(step, scalars={"losses/train": float(step)}))
    writer.flush()
    assert [next(found).value for _ in range(2)] == [0.5, 2.5]
    writer.close()
    end_run(tmp_path / "run")
    [last] = found
    assert (last.value, last.ended) == (4.0, True)


def test_following_a_run_without_steps_checks_the_names_when_they_come(tmp_path: Path) -> None:
    start_run(tmp_path / "run")
    found = ask(tmp_path / "run", "norm(gradiants)", follow=True)
    with closing(RunWriter(open_storage(tmp_path / "run"), 0)) as writer:
        writer.add(step_record(0, tensors={"gradients/a": np.ones(2)}))
    end_run(tmp_path / "run")
    with pytest.raises(UnknownTensor, match="did you mean gradients"):
        next(found)


@pytest.mark.thorough
def test_a_run_on_s3_answers_and_keeps_streams(s3: str) -> None:
    records = [
        step_record(step, tensors={"gradients/a": np.full(3, float(step))}) for step in range(9)
    ]
    made = make_run(f"{s3}/run", records)
    found = list(saved(ask(made, "max(gradients)", "2 steps"), made, "largest"))
    assert [one.value for one in found] == [0.5, 2.5, 4.5, 6.5, 8.0]
    assert list(streams(f"{s3}/run")["largest"]) == found
