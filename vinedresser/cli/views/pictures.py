"""Pages about a run as a whole: attention, embeddings, wrong predictions, saliency."""

from __future__ import annotations

from pathlib import Path, PurePath
from typing import Any

from vinedresser.cli.views.console import console
from vinedresser.cli.views.show import mode_of
from vinedresser.errors import ConfigError
from vinedresser.objects import LocalStorage, parse_location
from vinedresser.store.reading.reader import Run

__all__ = [
    "draw_attention",
    "draw_embeddings",
    "draw_explanation",
    "draw_mispredictions",
    "draw_saliency",
    "log_page",
]


def draw_attention(
    run: Run,
    name: str | None,
    target: Path | None,
    *,
    step: int | None,
    mode: str | None,
    rank: int,
    example: int,
    tokens: Path | None,
) -> Path:
    """Write the page of a run's attention, and print its path.

    Args:
        name: name of one tensor; None: the ``attention`` collection.
        target: the .html file; None: NAME-attention.html in the working directory.
        step: the step; None: the last one with attention.
        mode: "train", "eval" or "predict"; None: "train".
        rank: rank of a distributed run.
        example: number of the example.
        tokens: file with a token per line; None: the captured token ids.

    Raises:
        ConfigError: no such mode, example or file, the tokens do not fit, or the page cannot be
            written there.
        UnknownTensor: no such tensor, or no attention was captured.
        UnknownStep: not captured in full at this step.
        CorruptData: the bytes on disk do not match their checksum.
        StoreError: the file cannot be written.
    """
    from vinedresser.explain.attention import read_attention, write_attention

    place = _page(run, target, "attention", ".html")
    found = read_attention(run, name, step=step, mode=mode_of(mode or "train"), rank=rank)
    words = None if tokens is None else _lines(tokens)
    written = write_attention(found, place, tokens=words, example=example)
    console.print(f"{written}   attention of {found.origin}", soft_wrap=True)
    return written


def draw_embeddings(
    run: Run, name: str, target: Path | None, *, mode: str | None, rank: int
) -> Path:
    """Draw embeddings of an activation over the steps, and print the path of the file.

    Args:
        target: the .html or .png file; None: NAME-embeddings.html in the working directory.
        mode: "train", "eval" or "predict"; None: "eval" if it was captured then, else "train".
        rank: rank of a distributed run.

    Raises:
        ConfigError: no such mode, or the activation cannot be drawn, or not there.
        MissingDependency: scikit-learn is not installed.
        UnknownTensor: no such tensor; the message names the nearest.
        UnknownStep: never captured in full in this mode.
        CorruptData: the bytes on disk do not match their checksum.
        StoreError: the file cannot be written.
    """
    from vinedresser.explain.embeddings import (
        embed,
        embeddings_png,
        read_activations,
        write_embeddings,
    )

    place = _page(run, target, "embeddings", ".html", ".png")
    chosen = None if mode is None else mode_of(mode)
    found = embed(read_activations(run, name, mode=chosen, rank=rank))
    if place.suffix.lower() == ".png":
        LocalStorage(place.parent).put(place.name, [embeddings_png(found, run.info.classes)])
    else:
        write_embeddings(found, place, title=run.info.name, classes=run.info.classes)
    data = found.activations
    steps = ", ".join(map(str, data.steps))
    console.print(
        f"{place}   {len(found.pca[0])} examples of {name} at {data.mode} steps {steps}",
        soft_wrap=True,
    )
    return place


def draw_mispredictions(run: Run, target: Path | None, *, step: int | None) -> Path:
    """Draw wrong predictions by confusion cell, and print the path of the file.

    Args:
        target: the .html or .png file; None: NAME-mispredictions.html in the working directory.
        step: the evaluation or train step; None: the last evaluation.

    Raises:
        ConfigError: labels and predictions were not captured, or the file cannot be drawn.
        StoreError: the file cannot be written.
    """
    from vinedresser.explain.reports.mispredictions import (
        mispredictions,
        mispredictions_png,
        write_mispredictions,
    )

    place = _page(run, target, "mispredictions", ".html", ".png")
    found = mispredictions(run, step=step)
    if place.suffix.lower() == ".png":
        LocalStorage(place.parent).put(place.name, [mispredictions_png(found)])
    else:
        write_mispredictions(found, place)
    shown = "highest losses" if found.wrong is None else f"{found.wrong:,} wrong"
    console.print(f"{place}   {shown} among {found.seen.where}", soft_wrap=True)
    return place


def draw_saliency(run: Run, target: Path | None, *, model: str | None) -> Path:
    """Draw the saliency of captured examples over the steps, and print the path of the file.

    Args:
        target: the .html or .png file; None: NAME-saliency.html in the working directory.
        model: ``module:function`` that returns the model; None: explain the loss by the terms that
            were captured.

    Raises:
        ConfigError: the function does not exist, no inputs were captured, the model does not fit,
            or the file cannot be drawn.
        UnknownStep: the weights were not captured in full, or no terms without a model.
        SaliencyError: the model's output cannot be explained.
        CorruptData: the bytes on disk do not match their checksum.
        StoreError: the file cannot be written.
    """
    place = _page(run, target, "saliency", ".html", ".png")
    if model is None:
        from vinedresser.explain.saliency.captured import (
            captured_over_steps,
            write_captured_saliency,
        )

        captured = captured_over_steps(run)
        write_captured_saliency(run, captured, place)
        steps, what = [one.step for one in captured], "terms of the loss"
    else:
        from vinedresser.explain.saliency.over_steps import (
            saliency_over_steps,
            write_saliency_steps,
        )

        found = saliency_over_steps(run, _built(model))
        write_saliency_steps(run, found, place)
        steps, what = list(found.steps), f"{len(found.inputs)} examples"
    listed = ", ".join(map(str, steps))
    console.print(f"{place}   {what} at steps {listed}", soft_wrap=True)
    return place


def draw_explanation(run: Run, target: Path | None, *, model: str | None) -> Path:
    """Write the page that explains a run, and print its path.

    Args:
        target: the .html file; None: NAME-explain.html in the working directory.
        model: ``module:function`` that returns the model; None: explain the loss by the terms that
            were captured.

    Raises:
        ConfigError: the function does not exist, no inputs were captured, or the model does not
            fit.
        UnknownStep: the weights were not captured in full, or no terms without a model.
        SaliencyError: the model's output cannot be explained.
        CorruptData: the bytes on disk do not match their checksum.
        StoreError: the file cannot be written.
    """
    from vinedresser.explain.runs import explain_captured, explain_model, write_run_explanation

    place = _page(run, target, "explain", ".html")
    found = explain_captured(run) if model is None else explain_model(run, _built(model))
    write_run_explanation(found, place)
    console.print(
        f"{place}   {len(found.examples.classes)} examples; {found.origin}", soft_wrap=True
    )
    return place


def _built(model: str) -> Any:
    """Return what ``module:function``, found in the working directory first, returns.

    Raises:
        ConfigError: the function does not exist.
    """
    from vinedresser.infra.entry import function_here

    return function_here(model)()


def log_page(run: str, page: Path) -> None:
    """Upload a file to the MLflow run of a run, and print its id.

    Args:
        run: location of the run.

    Raises:
        ConfigError: MLflow does not track the run.
        UntrustedTracking: only the run's record names the tracking URI.
        CorruptData: the tracking record cannot be read.
        TrackingError: MLflow's database or server refused or is unavailable.
        StoreError: the storage refused.
    """
    from vinedresser.infra.catalog.known_tracking import read_tracking
    from vinedresser.infra.services.tracking.artifacts import upload

    record = read_tracking(parse_location(run))
    if record is None:
        raise ConfigError(f"{run}: --log: MLflow does not track this run")
    upload(record.uri, record.run_id, {page.name: page})
    console.print(f"mlflow run {record.run_id}   artifact {page.name}", soft_wrap=True)


def _page(run: Run, target: Path | None, subject: str, *suffixes: str) -> Path:
    """Return the file to write."""
    if target is None:
        # The last part of the location: the name in the run's record could be any path.
        return Path(f"{PurePath(run.path).name}-{subject}{suffixes[0]}")
    if target.suffix.lower() not in suffixes:
        raise ConfigError(
            f"--draw {target}: unknown format of {subject}; use {' or '.join(suffixes)}"
        )
    return target


def _lines(path: Path) -> list[str]:
    """Return the lines of a text file."""
    try:
        return path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--tokens {path}: cannot be read: {error}") from error
