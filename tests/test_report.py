"""The report of a run: what it says is what the run holds, whatever the run holds."""

from __future__ import annotations

import base64
import io
import json
import math
import re
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from vinedresser.capture.finding import Finding
from vinedresser.capture.store.reader import Run, open_run
from vinedresser.capture.store.step_record import StepRecord
from vinedresser.capture.store.writer import RunWriter
from vinedresser.explain.palette import FIRST_LEVEL, LEVELS, NONE, NOT_FINITE, ZERO
from vinedresser.explain.report import write_report
from vinedresser.infra.run_directory import (
    ExitRecord,
    Heartbeat,
    RunRecord,
    StopRecord,
    findings_key,
    heartbeat_key,
    read_record,
    write_record,
)
from vinedresser.infra.storage import LocalStorage

START = 1_700_000_000.0
NASTY = "</style><script>alert('x')</script><img src=x onerror=\"alert(1)\">&amp;"


def finding(**changes: Any) -> Finding:
    """Return a finding of the vanishing gradient rule, with some fields changed."""
    fields: dict[str, Any] = {
        "rule": "vanishing_gradient",
        "severity": "stop",
        "step": 24,
        "since": 16,
        "mode": "train",
        "rank": 0,
        "tensor": "gradients/first.weight",
        "statistic": "abs_mean",
        "value": 4e-8,
        "threshold": 1e-4,
        "confidence": 0.94,
        "seen": "Gradients of first.weight are 1.3e-06 of those of last.weight.",
        "cause": "eleven sigmoid layers",
        "remedy": "relu, or batch normalisation after each layer",
        "evidence": {"ratio": 1.3e-6},
    }
    return Finding(**fields | changes)


def make_run(
    directory: Path,
    records: Iterable[StepRecord] = (),
    *,
    findings: Sequence[Finding] | None = None,
    exit_record: ExitRecord | None = None,
    **info: Any,
) -> Run:
    """Write a run as a hook, a judge and a supervisor would, and open it."""
    storage = LocalStorage(directory)
    fields: dict[str, Any] = {"id": "3f2a9c", "name": "digits", "created": START}
    write_record(storage, RunRecord(**fields | info))
    writer = RunWriter(storage)
    for record in records:
        writer.add(record)
    assert writer.close(30)
    if findings is not None:
        lines = "".join(json.dumps(entry.to_json()) + "\n" for entry in findings)
        storage.put(findings_key("default"), [lines.encode()])
    if exit_record is not None:
        write_record(storage, exit_record)
    return open_run(directory)


def train(step: int, loss: float = 1.0, **gradients: float) -> StepRecord:
    """Return the record of a train step with a loss and gradient norms."""
    return StepRecord(
        "train",
        step,
        START + step,
        scalars={"losses/CrossEntropyLoss": loss},
        reductions={f"gradients/{name}": {"l2": value} for name, value in gradients.items()},
    )


class Page(HTMLParser):
    """A report, taken apart: its tags, its visible text, its figures as XML."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.html = path.read_text(encoding="utf-8")
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self._style = False
        self.feed(self.html)
        self.figures = [ET.fromstring(svg) for svg in re.findall(r"<svg .*?</svg>", self.html)]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._style = tag == "style"

    def handle_data(self, data: str) -> None:
        if not self._style:
            self.words.append(data)

    @property
    def text(self) -> str:
        """Return all visible text in one line."""
        return " ".join(" ".join(self.words).split())

    def charts(self) -> list[ET.Element]:
        """Return the line charts."""
        return [svg for svg in self.figures if svg.get("class") == "chart"]

    def heat(self) -> ET.Element:
        """Return the heat map."""
        (heat,) = [svg for svg in self.figures if svg.get("class") == "chart heat"]
        return heat

    def cells(self) -> NDArray[np.uint8]:
        """Return the heat map's palette indices as a picture viewer decodes them, [L, C]."""
        (image,) = self.heat().iter("image")
        href = image.get("href")
        assert href is not None
        with Image.open(io.BytesIO(base64.b64decode(href.partition(",")[2]))) as picture:
            return np.array(picture)

    def colour_ends(self) -> tuple[float, float]:
        """Return the logarithms at the ends of the colour scale."""
        (scale,) = [svg for svg in self.figures if svg.get("data-low")]
        return float(scale.get("data-low", "")), float(scale.get("data-high", ""))


def attribute(node: ET.Element, name: str) -> float:
    """Return a number from an attribute."""
    return float(node.get(name, "nan"))


def axis_value(chart: ET.Element, axis: str, pixel: float) -> float:
    """Return the value at a place, read off the labelled ticks of a linear axis as people do."""
    ticks = [node for node in chart.iter("text") if node.get("class") == f"tick {axis}"]
    places = [attribute(node, axis) - (3.5 if axis == "y" else 0) for node in ticks]
    values = [
        float((node.text or "").replace(",", "").replace("\N{MINUS SIGN}", "-")) for node in ticks
    ]
    slope, offset = np.polyfit(places, values, 1)
    return float(slope * pixel + offset)


def stopped_run(directory: Path) -> Run:
    """Return a run that a rule stopped at step 24 of 100."""
    records = [
        train(step, 2.3 - 0.01 * step, **{"first.weight": 1e-8, "last.weight": 0.1})
        for step in range(25)
    ]
    records.append(
        StepRecord(
            "eval",
            20,
            START + 20,
            scalars={"losses/CrossEntropyLoss": 2.2, "metrics/accuracy": 0.25},
        )
    )
    warning = finding(rule="loss_not_decreasing", severity="warning", step=10, since=4)
    reason = "gradients of first.weight vanish"
    stop = StopRecord(by="rule", reason=reason, time=START + 25, rule="vanishing_gradient", step=24)
    ended = ExitRecord("stopped", reason, START + 90, code=0, last_step=24, stop=stop.to_json())
    run = make_run(
        directory,
        records,
        findings=[warning, finding()],
        exit_record=ended,
        total_steps=100,
        parameters={"lr": 0.1, "optimizer": {"name": "SGD"}},
        command=["python", "train.py", "--note", "a b"],
    )
    write_record(run.storage, stop)
    return run


def test_the_head_says_who_stopped_the_run_why_and_what_was_saved(tmp_path: Path) -> None:
    page = Page(write_report(stopped_run(tmp_path / "run"), tmp_path / "report.html"))
    assert "Stopped by vanishing_gradient — gradients of first.weight vanish" in page.text
    assert "Steps run 25 of 100 Steps saved 75 75% of the run" in page.text
    assert "Duration 1 min 30 s" in page.text
    assert "optimizer.name SGD" in page.text
    assert "python train.py --note 'a b'" in page.text


def test_the_findings_are_told_in_words_with_their_evidence(tmp_path: Path) -> None:
    page = Page(write_report(stopped_run(tmp_path / "run"), tmp_path / "report.html"))
    assert (
        "2 Vanishing gradient stopped the run step 24, seen since step 16 · 94% sure · "
        "gradients/first.weight Gradients of first.weight are 1.3e-06 of those of last.weight. "
        "Likely cause eleven sigmoid layers Try relu, or batch normalisation after each layer "
        "Evidence ratio 1.3 \N{MULTIPLICATION SIGN} 10⁻⁶"
    ) in page.text
    assert "1 Loss not decreasing warning step 10, seen since step 4" in page.text


def test_markers_stand_at_the_steps_at_which_rules_fired(tmp_path: Path) -> None:
    page = Page(write_report(stopped_run(tmp_path / "run"), tmp_path / "report.html"))
    charts = page.charts()
    assert [chart.get("aria-label") for chart in charts] == [
        "CrossEntropyLoss by step",
        "accuracy by step",
    ]
    for chart in [*charts, page.heat()]:
        marks = [node for node in chart.iter("g") if "marker" in node.get("class", "")]
        assert [mark.get("class") for mark in marks] == ["marker warning", "marker stop"]
        assert [mark.findtext("text") for mark in marks] == ["1", "2"]
        lines = [mark.find("line") for mark in marks]
        steps = [
            axis_value(chart, "x", attribute(line, "x1")) for line in lines if line is not None
        ]
        assert steps == pytest.approx([10, 24], abs=0.05)


def test_the_loss_curve_passes_through_the_values(tmp_path: Path) -> None:
    page = Page(write_report(stopped_run(tmp_path / "run"), tmp_path / "report.html"))
    chart = page.charts()[0]
    (line,) = [node for node in chart.iter("path") if node.get("class") == "trend"]
    pairs = [tuple(map(float, pair.split())) for pair in re.split("[ML]", line.get("d", ""))[1:]]
    values = [axis_value(chart, "y", y) for _, y in pairs]
    assert values == pytest.approx([2.3 - 0.01 * step for step in range(25)], abs=5e-4)
    (point,) = [node for node in chart.iter("circle") if node.get("class") == "point eval"]
    assert point.findtext("title") == "step 20: 2.2"
    assert axis_value(chart, "y", attribute(point, "cy")) == pytest.approx(2.2, abs=5e-4)
    assert axis_value(chart, "x", attribute(point, "cx")) == pytest.approx(20, abs=0.05)


def test_a_noisy_long_curve_is_outlined_with_its_trend(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    records = [train(step, 1 + 0.1 * rng.normal()) for step in range(3000)]
    page = Page(write_report(make_run(tmp_path / "run", records), tmp_path / "report.html"))
    kinds = [node.get("class") for node in page.charts()[0].iter("path")]
    assert kinds == ["raw", "trend"]
    assert len(page.html) < 60_000


def test_the_heat_map_shows_the_readers_values(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    names = [f"layers.{number}.weight" for number in range(7)]
    records = [
        train(step, **{name: 10 ** rng.uniform(-9, 1) for name in names}) for step in range(60)
    ]
    run = make_run(tmp_path / "run", records)
    page = Page(write_report(run, tmp_path / "report.html"))
    columns = run.reductions("l2", "gradients")
    expected = np.log10([columns[f"gradients/{name}"].values for name in names])
    low, high = page.colour_ends()
    assert (low, high) == pytest.approx((expected.min(), expected.max()))
    level = page.cells().astype(float) - FIRST_LEVEL
    shown = low + level / (LEVELS - 1) * (high - low)
    assert shown.shape == (7, 60)
    np.testing.assert_allclose(shown, expected, atol=0.51 * (high - low) / (LEVELS - 1))
    labels = [node.text for node in page.heat().iter("text") if node.get("class") == "tick y"]
    assert labels == names


def test_zero_not_finite_and_not_captured_have_colours_of_their_own(tmp_path: Path) -> None:
    values = [0.5, 0.0, math.nan, math.inf]
    records = [train(step, a=value) for step, value in enumerate(values)]
    records.append(train(4, b=2.0))
    page = Page(write_report(make_run(tmp_path / "run", records), tmp_path / "report.html"))
    cells = page.cells().tolist()
    assert cells[0] == [FIRST_LEVEL, ZERO, NOT_FINITE, NOT_FINITE, NONE]
    assert cells[1] == [NONE, NONE, NONE, NONE, FIRST_LEVEL + LEVELS - 1]


def test_many_steps_are_merged_by_their_geometric_mean(tmp_path: Path) -> None:
    # 1 and 100 in turn: the geometric mean is 10, the arithmetic one 50.5.
    records = [train(step, a=100.0 if step % 2 else 1.0, b=1000.0) for step in range(480)]
    records[7].reductions["gradients/a"]["l2"] = math.nan
    page = Page(write_report(make_run(tmp_path / "run", records), tmp_path / "report.html"))
    cells = page.cells()
    low, high = page.colour_ends()
    assert (low, high) == pytest.approx((1.0, 3.0))
    assert cells.shape == (2, 240)
    assert cells[0, 3] == NOT_FINITE
    assert set(np.delete(cells[0], 3).tolist()) == {FIRST_LEVEL}
    assert "480 captured steps, neighbours merged" in page.text


def test_the_statistic_that_most_parameters_have_is_drawn(tmp_path: Path) -> None:
    records = [train(step, a=1.0) for step in range(3)]
    for record in records:
        for name in ("a", "b"):
            record.reductions.setdefault(f"gradients/{name}", {})["abs_mean"] = 0.5
    page = Page(write_report(make_run(tmp_path / "run", records), tmp_path / "report.html"))
    assert "mean absolute value · 2 parameters" in page.text


def test_nothing_from_the_run_becomes_markup(tmp_path: Path) -> None:
    record = StepRecord(
        "train",
        0,
        START,
        scalars={f"losses/{NASTY}": 1.0, f"metrics/{NASTY}": math.nan},
        reductions={f"gradients/{NASTY}": {"l2": 1.0}},
    )
    nasty = finding(
        rule=NASTY, tensor=NASTY, seen=NASTY, cause=NASTY, remedy=NASTY, evidence={NASTY: [NASTY]}
    )
    run = make_run(
        tmp_path / "run",
        [record],
        findings=[nasty],
        exit_record=ExitRecord("crashed", NASTY, START + 1, code=1),
        name=NASTY,
        parameters={NASTY: NASTY},
        command=[NASTY, "\udcff"],
        versions={NASTY: NASTY},
    )
    page = Page(write_report(run, tmp_path / "report.html"))
    assert not {"script", "img"} & {tag for tag, _ in page.tags}
    assert not [attrs for _, attrs in page.tags if any(name.startswith("on") for name in attrs)]
    assert page.text.count("<script>alert('x')</script>") >= 10
    assert page.html.count("</style>") == 1


def test_the_page_needs_nothing_but_itself(tmp_path: Path) -> None:
    page = Page(write_report(stopped_run(tmp_path / "run"), tmp_path / "report.html"))
    assert not {"script", "link", "iframe", "object", "embed"} & {tag for tag, _ in page.tags}
    for tag, attrs in page.tags:
        for name in ("src", "href", "xlink:href", "action"):
            assert (attrs.get(name) or "data:").startswith("data:"), (tag, attrs)
    assert "://" not in page.html
    assert "@import" not in page.html
    assert set(re.findall(r"url\((.*?)\)", page.html)) <= {"#decades"}


def test_a_run_without_a_step_says_what_is_missing(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", exit_record=ExitRecord("crashed", "KeyError: 'x'", START, 1))
    page = Page(write_report(run, tmp_path / "report.html"))
    assert "Crashed with exit code 1 — KeyError: 'x'" in page.text
    assert "Nothing was captured: no optimizer step has ended." in page.text
    assert "No gradient statistics were captured." in page.text
    assert "No rule has watched this run" in page.text
    assert "The run was given no parameters by name." in page.text
    assert page.charts() == []


def test_a_run_without_a_loss_says_how_to_capture_one(tmp_path: Path) -> None:
    records = [StepRecord("train", 0, START, scalars={"metrics/accuracy": 0.5})]
    page = Page(write_report(make_run(tmp_path / "run", records), tmp_path / "report.html"))
    assert "No loss was captured. Show the hook the loss module" in page.text
    assert len(page.charts()) == 1


def test_a_run_of_nothing_but_nan_has_a_page(tmp_path: Path) -> None:
    records = [train(step, math.nan, a=math.nan) for step in range(40)]
    run = make_run(tmp_path / "run", records, findings=[])
    page = Page(write_report(run, tmp_path / "report.html"))
    assert "no finite value" in page.text
    assert "not finite 40 times, first at step 0" in page.text
    assert "The rules watched this run and found nothing." in page.text
    assert set(page.cells().ravel().tolist()) == {NOT_FINITE}
    (strokes,) = [
        node for node in page.charts()[0].iter("path") if node.get("class") == "nonfinite"
    ]
    assert strokes.get("d", "").count("M") == 40


@pytest.mark.parametrize("base", [10.0, -10.0])
def test_a_loss_up_to_the_largest_float_has_a_page(tmp_path: Path, base: float) -> None:
    # Warnings are errors here: an overflow in the drawing would fail it.
    largest = sys.float_info.max
    records = [train(step, base ** min(step * 4, 308), a=largest) for step in range(90)]
    records.append(train(90, largest, a=5e-324))
    page = Page(write_report(make_run(tmp_path / "run", records), tmp_path / "report.html"))
    assert "Last loss" in page.text
    assert len(page.charts()) == 1


def test_thousands_of_evaluations_and_findings_stay_small(tmp_path: Path) -> None:
    records = [
        StepRecord("eval", step, START, scalars={"metrics/accuracy": step / 5000})
        for step in range(5000)
    ]
    findings = [finding(step=step) for step in range(60)]
    run = make_run(tmp_path / "run", records, findings=findings)
    page = Page(write_report(run, tmp_path / "report.html"))
    assert len(page.html) < 200_000
    assert "10 further findings not shown" in page.text


def test_a_run_of_one_step_has_a_page(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", [train(0, 1.25, a=0.5)])
    page = Page(write_report(run, tmp_path / "report.html"))
    (point,) = page.charts()[0].iter("circle")
    assert axis_value(page.charts()[0], "y", attribute(point, "cy")) == pytest.approx(1.25)
    assert page.cells().shape == (1, 1)


def test_three_hundred_layers_and_twenty_thousand_steps_stay_small_and_readable(
    tmp_path: Path,
) -> None:
    rng = np.random.default_rng(2)
    names = [f"encoder.layers.{number}.self_attn.out_proj.weight" for number in range(300)]
    records = [
        train(
            step, 1.0, **(dict(zip(names, rng.random(300), strict=True)) if step % 50 == 0 else {})
        )
        for step in range(20_000)
    ]
    run = make_run(tmp_path / "run", records)
    path = write_report(run, tmp_path / "report.html")
    assert path.stat().st_size < 1_000_000
    page = Page(path)
    assert page.cells().shape == (300, 200)
    labels = [node for node in page.heat().iter("text") if node.get("class") == "tick y"]
    heights = [attribute(node, "y") for node in labels]
    assert len(labels) >= 50
    assert np.diff(heights).min() >= 10
    assert all("out_proj.weight" in (node.text or "") for node in labels)
    titles = [node.findtext("title") or "" for node in page.heat().iter("rect")]
    assert {title.partition(":")[0] for title in titles} >= set(names)


def test_scalars_that_are_not_drawn_are_named(tmp_path: Path) -> None:
    scalars = {f"metrics/m{number}": 1.0 for number in range(14)}
    run = make_run(tmp_path / "run", [StepRecord("train", 0, START, scalars=scalars)])
    page = Page(write_report(run, tmp_path / "report.html"))
    assert "2 further scalars not drawn: metrics/m12, metrics/m13" in page.text


def test_lost_records_and_unreadable_findings_are_told(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", [train(0)])
    beat = read_record(run.storage, Heartbeat, key=heartbeat_key(0))
    assert beat is not None
    lossy = Heartbeat(beat.rank, beat.process, beat.last_step, beat.time, dropped=3)
    write_record(run.storage, lossy, key=heartbeat_key(0))
    run.storage.put(findings_key("default"), [b"not json\n"])
    page = Page(write_report(run, tmp_path / "report.html"))
    assert "rank 0: 3 step records not written (queue or disk full)" in page.text
    assert "The findings cannot be read:" in page.text


def test_a_report_of_a_running_run_says_so_and_is_replaced_by_a_later_one(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", created=time.time())
    path = tmp_path / "new" / "report.html"
    assert write_report(run, path) == path
    assert "Still running" in Page(path).text
    write_record(run.storage, ExitRecord("finished", "", time.time() + 1, code=0))
    write_report(run, path)
    assert "Finished" in Page(path).text
    assert [entry.name for entry in path.parent.iterdir()] == ["report.html"]
