"""Reductions from a training through the store to its reader."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.store.reductions.reference import FIGURES, RELATIVE, assert_close, expected_figures
from vinedresser.capture import Collection, Hook, SaveConfig, open_run
from vinedresser.capture.config.capture_config import CaptureConfig
from vinedresser.capture.recording.recording import Recording
from vinedresser.capture.recording.tensor_copier import ArrayCopier
from vinedresser.errors import ConfigError, UnknownStep, UnknownTensor
from vinedresser.objects import open_storage
from vinedresser.store.reductions import REDUCTIONS, Statistics, compute_statistics, parse_reduction
from vinedresser.store.step_record import StepRecord
from vinedresser.store.writing.record_queue import RecordQueue
from vinedresser.store.writing.writer import RunWriter

STEPS = 4
QUANTILES = ("p1", "p50", "abs_p99.9")
EVERY_WORD = (
    *FIGURES,
    *QUANTILES,
    "histogram",
    "abs_histogram",
    *(f"channel_{word}" for word in (*FIGURES, *QUANTILES, "histogram", "abs_histogram")),
)
KINDS = ("weights", "biases", "gradients", "inputs", "outputs", "buffers", "optimizer_state")


def train(path: Path | None, collections: Mapping[str, SaveConfig | Collection]) -> bytes:
    """Train a small network with dropout; return the bytes of its weights and of the generator."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Flatten(),
        nn.Dropout(0.2), nn.Linear(8 * 36, 5),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters())
    loss = nn.CrossEntropyLoss()
    hook = None if path is None else Hook(path, collections=collections)
    if hook is not None:
        hook.watch(model, loss, optimizer)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss(model(torch.randn(4, 3, 8, 8)), torch.randint(0, 5, (4,))).backward()
        optimizer.step()
    if hook is not None:
        hook.close()
        assert hook.problems == []
    state: list[Tensor] = [*model.state_dict().values(), torch.get_rng_state()]
    return b"".join(one.numpy().tobytes() for one in state)


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run with every reduction of every tensor, and the tensors themselves."""
    path = tmp_path_factory.mktemp("reductions") / "run"
    save = SaveConfig(every=1, reductions=EVERY_WORD, tensor=True)
    assert train(path, dict.fromkeys(KINDS, save)) == train(None, {})
    return path


def test_a_training_with_every_reduction_ends_in_the_same_bits(everything: Path) -> None:
    run = open_run(everything)
    assert run.problems == []
    assert run.steps().tolist() == list(range(STEPS))
    for name in run.tensor_names():
        view = run.tensor(name)
        scalar_words = {w for w in EVERY_WORD if not parse_reduction(w).vector}
        assert set(view.reductions) == scalar_words, name
        assert set(view.vector_reductions) == {w for w in EVERY_WORD if parse_reduction(w).vector}


@pytest.mark.thorough
def test_captured_statistics_match_the_tensors(everything: Path) -> None:
    run = open_run(everything)
    assert {name.partition("/")[0] for name in run.tensor_names()} >= {"weights", "gradients"}
    for name in run.tensor_names():
        view = run.tensor(name)
        columns = {word: view.reduction(word) for word in (*FIGURES, "abs_p99.9")}
        # The state of an optimizer is not there at the first step.
        for row, step in enumerate(view.steps().tolist()):
            value = view.value(step)
            assert {column.steps[row] for column in columns.values()} == {step}
            found = {word: float(column.values[row]) for word, column in columns.items()}
            magnitude = np.abs(value.astype(np.float64))
            assert found.pop("abs_p99.9") == pytest.approx(np.quantile(magnitude, 0.999))
            assert_close(found, expected_figures(value), RELATIVE)
            counts, edges = view.histogram(step)
            assert counts.sum() == value.size
            assert (edges[0], edges[-1]) == (value.min(), value.max())
            _, edges = view.histogram(step, absolute=True)
            assert (edges[0], edges[-1]) == (magnitude.min(), magnitude.max())


@pytest.mark.parametrize(
    ("name", "axis", "channels"),
    [
        ("weights/0.weight", 0, 8),
        ("outputs/0", 1, 8),
        ("biases/5.bias", 0, 5),
        ("outputs/3", 1, 288),
    ],
)
def test_channels_are_read_by_their_statistic(
    everything: Path, name: str, axis: int, channels: int
) -> None:
    view = open_run(everything).tensor(name)
    assert view.steps(reduction="channel_l2").tolist() == list(range(STEPS))
    rows = np.moveaxis(view.value(2), axis, 0).reshape(channels, -1).astype(np.float64)
    assert view.channels("l2", 2) == pytest.approx(np.linalg.norm(rows, axis=1), rel=1e-6)
    assert view.channels("abs_p99.9", 2) == pytest.approx(np.quantile(np.abs(rows), 0.999, axis=1))
    assert view.channels("histogram", 2).shape == (channels, 66)
    assert view.channels("max", 2).dtype == np.float64


def test_vector_reductions_are_not_listed_as_tensors(tmp_path: Path) -> None:
    train(
        tmp_path / "run",
        {
            "gradients": SaveConfig(every=2, reductions=("histogram",)),
            "first": Collection(
                regex=r"outputs/0$", save=SaveConfig(every=1, reductions=("channel_mean", "p50"))
            ),
        },
    )
    run = open_run(tmp_path / "run")
    gradients = ["gradients/0.bias", "gradients/0.weight", "gradients/1.bias"]
    assert sorted(run.tensor_names(collection="gradients"))[:3] == gradients
    assert run.tensor_names(collection="first") == ["outputs/0"]
    assert not [name for name in run.tensor_names() if "|" in name]
    for step in run.follow():
        assert step.tensor_names == ()
        assert set(step.reductions) == {"outputs/0"}
    view = run.tensor("gradients/0.weight")
    assert view.reductions == ()
    assert view.vector_reductions == ("histogram",)
    assert view.steps().tolist() == []
    assert view.steps(reduction="histogram").tolist() == [0, 2]
    assert view.histogram(2).counts.sum() == 8 * 3 * 9
    with pytest.raises(UnknownStep, match="train step 3 of rank 0; the nearest steps are 0, 2"):
        view.histogram(3)
    with pytest.raises(UnknownTensor, match="no channel_l2 was captured; captured: histogram"):
        view.channels("l2", 2)
    with pytest.raises(UnknownTensor, match=r"no tensor gradients/0\.weigh; did you mean grad"):
        run.tensor("gradients/0.weigh")


def test_a_statistic_can_be_computed_from_the_tensors_in_full(everything: Path) -> None:
    view = open_run(everything).tensor("gradients/0.weight")
    captured = view.reduction("l2")
    computed = view.computed("l2")
    assert computed.steps.tolist() == captured.steps.tolist()
    assert computed.times.tolist() == captured.times.tolist()
    assert computed.mode == "train"
    assert computed.values == pytest.approx(captured.values, rel=1e-6)
    assert view.computed("p1").values == pytest.approx(view.reduction("p1").values)
    # A statistic that was not captured.
    expected = [np.quantile(view.value(step), 0.123) for step in range(STEPS)]
    assert view.computed("p12.3").values == pytest.approx(expected)
    assert len(view.computed("l2", mode="eval")) == 0
    assert len(view.computed("l2", rank=3)) == 0
    with pytest.raises(ConfigError, match="unknown reduction 'l3'"):
        view.computed("l3")
    with pytest.raises(ConfigError, match="histogram is a vector"):
        view.computed("histogram")


def test_a_tensor_with_two_names_is_sampled_and_stored_once(tmp_path: Path) -> None:
    save = SaveConfig(every=1, reductions=("histogram", "p50", "channel_l2", "l1"))
    hook = Hook(tmp_path / "run", collections={"inputs": save, "outputs": save})
    model = nn.Sequential(nn.Sequential(nn.Linear(4, 4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hook.watch(model, optimizer=optimizer)
    model(torch.randn(300, 4)).sum().backward()
    optimizer.step()
    hook.close()
    run = open_run(tmp_path / "run")
    outputs = [run.tensor(f"outputs/{path}") for path in ("0.0", "0", "Sequential")]
    for view in outputs:
        assert view.histogram(0).counts.sum() == 1200
        assert view.channels("l2", 0).shape == (4,)
        assert view.reduction("p50").values == outputs[0].reduction("p50").values
    statistics = Statistics(True, samples=[((parse_reduction("p50"),), np.zeros((1, 1000)))])
    record = StepRecord(
        "train", 0, 0.0, deferred={"outputs/a": statistics, "outputs/b": statistics}
    )
    assert record.nbytes() == 8000
    assert record.settle() == {}
    assert record.reductions["outputs/a"] is record.reductions["outputs/b"]


def test_evaluations_and_values_saved_by_hand_are_reduced_too(tmp_path: Path) -> None:
    words = ("mean", "p50", "histogram", "channel_max")
    hook = Hook(tmp_path / "run", collections={"saved": SaveConfig(every=1, reductions=words)})
    latent = np.arange(12.0).reshape(3, 4)
    hook.save("latent", latent)
    latent[:] = -1
    hook.step()
    with hook.mode("eval"):
        hook.save("latent", torch.full((3, 4), 7))
    hook.close()
    assert hook.problems == []
    view = open_run(tmp_path / "run").tensor("saved/latent")
    assert view.reduction("p50", "train").values.tolist() == [5.5]
    assert view.reduction("mean", "eval").values.tolist() == [7]
    assert view.histogram(0).counts.sum() == 12
    assert view.histogram(1, "eval").edges[0] == 7
    assert view.channels("max", 0).tolist() == [8, 9, 10, 11]


def test_a_statistic_that_cannot_be_computed_is_lost_alone(tmp_path: Path) -> None:
    problems: list[str] = []
    writer = RunWriter(open_storage(tmp_path), on_problem=problems.append)
    good = compute_statistics(np.arange(5.0), frozenset(["p50", "histogram", "mean"]), None)
    # No copier lets such a sample through.
    words = (parse_reduction("p50"), parse_reduction("channel_p5"))
    bad = Statistics(True, scalars={"l2": 2.0}, samples=[(words, np.array([["a", "b"]]))])
    record = StepRecord("train", 3, 0.0, scalars={"losses/a": 1.0})
    record.deferred = {"outputs/bad": bad, "outputs/good": good}
    assert writer.add(record)
    assert writer.close(30)
    assert writer.dropped == 0
    # One sentence per kind of problem: only the first reduction is reported.
    (problem,) = problems
    assert problem.startswith("p50 of outputs/bad at train step 3 is lost: could not convert")
    assert record.scalars == {"losses/a": 1.0}
    assert record.reductions == {
        "outputs/bad": {"l2": 2.0},
        "outputs/good": {"mean": 2.0, "p50": 2.0},
    }
    assert set(record.tensors) == {"outputs/good|histogram"}
    assert list((tmp_path / "segments" / "0").iterdir())


def test_samples_count_in_the_bound_of_the_queue() -> None:
    queue = RecordQueue(100_000, "drop")

    def record(step: int) -> StepRecord:
        sample = compute_statistics(np.zeros((30, 250)), frozenset(["p50"]), None)
        return StepRecord("train", step, 0.0, deferred={"outputs/a": sample})

    assert record(0).nbytes() == 60_000
    assert queue.put(record(0))
    assert not queue.put(record(1))
    assert queue.refused == 1


def test_expensive_statistics_are_computed_by_the_writer() -> None:
    threads = {thread.name for thread in threading.enumerate()}
    words = frozenset(["p50", "histogram", *REDUCTIONS])
    statistics = compute_statistics(np.zeros(10), words, None)
    assert set(statistics.scalars) == set(REDUCTIONS)
    assert statistics.vectors == {}
    assert statistics.late
    assert {thread.name for thread in threading.enumerate()} == threads


def test_a_framework_with_channels_last_says_so() -> None:
    class ChannelsLast(ArrayCopier):
        channels_last = True

    due = CaptureConfig.of({"outputs": SaveConfig(reductions=("channel_max",))}).due(0, "train")
    for copier, shape in ((ArrayCopier(), (3,)), (ChannelsLast(), (5,))):
        recording = Recording("train", 0, due)
        copier.keep(recording, "outputs/a", np.zeros((2, 3, 4, 5)), due.ask("outputs/a"))
        assert recording.names() == {"outputs/a"}
        assert not recording.empty
        record = recording.to_record()
        record.settle()
        assert record.tensors["outputs/a|channel_max"].shape == shape
