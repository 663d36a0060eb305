"""Embeddings: the same examples at all steps, projected and aligned."""

from __future__ import annotations

import re
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from sklearn.decomposition import PCA

from tests.explain.reports.pages import Page
from vinedresser.errors import ConfigError, UnknownStep, UnknownTensor
from vinedresser.explain.embeddings import (
    embed,
    embeddings_png,
    read_activations,
    write_embeddings,
)
from vinedresser.explain.embeddings.projection import aligned, neighbour_agreement, pca
from vinedresser.store.reading.reader import Run
from vinedresser.testing.runs import make_run, step_record

STEPS = (0, 10, 20)
CLASSES = np.arange(30) % 3


def clusters(apart: float, seed: int) -> NDArray[np.float64]:
    """Return three clusters of ten examples, [30, 8]."""
    generator = np.random.default_rng(seed)
    return np.asarray(np.eye(3, 8)[CLASSES] * apart + 0.3 * generator.standard_normal((30, 8)))


def run_with(path: Path, *, orders: Sequence[NDArray[np.int64]] | None = None) -> Run:
    """Return a run whose clusters part, each evaluation with its examples in some order."""
    records = []
    examples = np.random.default_rng(9).standard_normal((30, 5))
    for place, step in enumerate(STEPS):
        order = np.arange(30) if orders is None else orders[place]
        tensors: dict[str, NDArray[Any]] = {
            "inputs/batch": examples[order],
            "outputs/latent": clusters(4.0 * place, place)[order],
            "labels/loss": CLASSES[order],
        }
        records.append(step_record(step, mode="eval", tensors=tensors))
    return make_run(path, records, classes=["cat", "dog", "eel"])


def test_shuffled_examples_are_recognised_by_their_inputs(tmp_path: Path) -> None:
    generator = np.random.default_rng(1)
    orders = [generator.permutation(30)[:size] for size in (30, 25, 28)]
    found = read_activations(run_with(tmp_path / "run", orders=orders), "outputs/latent")
    common = [one for one in orders[0] if one in orders[1] and one in orders[2]]
    assert (found.same, found.steps, found.mode) == ("known", STEPS, "eval")
    np.testing.assert_array_equal(found.labels, CLASSES[common])
    for place, values in enumerate(found.values):
        np.testing.assert_array_equal(values, clusters(4.0 * place, place)[common])


def test_pca_is_that_of_scikit_learn() -> None:
    values = clusters(2.0, 0)
    scores, shares = pca(values)
    peer = PCA(2).fit(values)
    np.testing.assert_allclose(np.abs(scores), np.abs(peer.transform(values)), atol=1e-9)
    np.testing.assert_allclose(shares, peer.explained_variance_ratio_)
    flat, none = pca(np.ones((5, 1)))
    assert not flat.any()
    assert not none.any()


def test_steps_are_rotated_and_mirrored_to_the_previous_one() -> None:
    points = np.random.default_rng(0).standard_normal((12, 2))
    angle = np.deg2rad(130)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    mirrored = 1.5 * points @ turn @ np.diag([1, -1]) + [3, -4]
    first, second = aligned([points, mirrored])
    np.testing.assert_allclose(second, 1.5 * first, atol=1e-12)


def test_neighbours_of_the_same_class() -> None:
    values = np.array([[0.0], [1], [2], [3], [4], [100], [101], [102], [103], [104], [105]])
    labels = np.array([0] * 5 + [1] * 6)
    # Each of the first five has four of its class and 100; the others five of theirs.
    assert neighbour_agreement(values, labels) == pytest.approx((5 * 4 / 5 + 6) / 11)


@pytest.mark.thorough
def test_the_page_and_the_picture(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run")
    found = embed(read_activations(run, "outputs/latent"))
    again = embed(read_activations(run, "outputs/latent"))
    np.testing.assert_array_equal(found.tsne[2], again.tsne[2])

    page = Page(
        write_embeddings(found, tmp_path / "page.html", title="a run", classes=run.info.classes)
    )
    charts = page.all_figures("chart scatter")
    assert [chart.get("aria-label") for chart in charts] == [f"step {n}" for n in STEPS] * 2
    # In the last step the classes are apart: each colour has its own part of the chart.
    drawn = list(charts[2].iter("path"))
    parts = [
        np.array(re.findall(r"M([\d.]+) ([\d.]+)h0", path.get("d", "")), float) for path in drawn
    ]
    assert [len(part) for part in parts] == [10, 10, 10]
    spread = max(float(np.linalg.norm(part - part.mean(0), axis=1).max()) for part in parts)
    middles = [part.mean(0) for part in parts]
    apart = min(float(np.linalg.norm(middles[0] - other)) for other in middles[1:])
    assert apart > 2 * spread
    assert "cat dog eel" in page.text
    assert re.search(r"share \d+% \d+% 100%", page.text)

    with Image.open(BytesIO(embeddings_png(found, run.info.classes))) as picture:
        assert picture.size == (3 * 320 + 2 * 11, 2 * 320 + 11)
        seen = {value for _, value in picture.getcolors(1 << 16) or []}
    assert {tuple(bytes.fromhex((path.get("stroke") or "")[1:])) for path in drawn} <= seen


def test_what_is_not_known_is_said(tmp_path: Path) -> None:
    records = [
        step_record(step, tensors={"outputs/a": np.random.default_rng(step).random((6, 4, 3, 3))})
        for step in range(3)
    ]
    found = read_activations(make_run(tmp_path / "run", records), "outputs/a")
    assert found.mode == "train"
    assert found.values[0].shape == (6, 4)
    text = Page(write_embeddings(embed(found), tmp_path / "page.html", title="a run")).text
    assert "means over the rows and columns of the image" in text
    assert "no inputs were captured" in text
    assert "no labels that are the same at all steps" in text


def test_what_cannot_be_drawn(tmp_path: Path) -> None:
    records = [
        step_record(
            step,
            tensors={"inputs/batch": np.full((5, 2), float(step)), "outputs/a": np.ones((5, 2))},
        )
        for step in range(2)
    ]
    records.append(step_record(2, tensors={"saved/number": np.ones(3)}))
    run = make_run(tmp_path / "run", records)
    with pytest.raises(ConfigError, match="have 0 examples in common, and 4 are needed"):
        read_activations(run, "outputs/a")
    with pytest.raises(ConfigError, match=r"must be \[rows, features, ...\], not \[3\]"):
        read_activations(run, "saved/number")
    with pytest.raises(UnknownTensor, match="did you mean outputs/a"):
        read_activations(run, "outputs/b")
    with pytest.raises(UnknownStep, match="never captured in full in mode eval"):
        read_activations(run, "outputs/a", mode="eval")
