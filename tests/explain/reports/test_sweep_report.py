"""The report of a sweep: complete, correct, and quick with many trials."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from vinedresser.explain.reports.sweep import SweepPage, causes, without_links, write_sweep_report
from vinedresser.sweeps.dimension import Choice
from vinedresser.sweeps.settings import Objective, SweepTable
from vinedresser.sweeps.space import Space
from vinedresser.sweeps.trial import Line, Trial, TrialEnd

SPACE = Space.parse(
    {
        "lr": {"log": [1e-4, 10.0]},
        "act": ["relu", "tanh", "sigmoid"],
        "momentum": {"float": [0.0, 0.9], "when": {"act": "relu"}},
    },
    "space",
)
SETTINGS = SweepTable(metric="accuracy", direction="maximize", trials=1000, epochs=9)
TOO_HIGH = TrialEnd(
    "stopped", "the loss rose", "loss_not_decreasing", "learning_rate_too_high", "lr 1 instead of 9"
)


def trials(count: int) -> list[Trial]:
    """Return trials: with a rate above 1 a rule stops them, the others finish or are pruned."""
    draw = random.Random(0)
    found = []
    for number in range(count):
        rate = 10 ** draw.uniform(-4, 1)
        parameters: dict[str, Choice] = {"lr": rate, "act": draw.choice(["relu", "tanh"])}
        if parameters["act"] == "relu":
            parameters["momentum"] = draw.uniform(0, 0.9)
        stopped, pruned = rate > 1, number % 3
        epochs = 2 if stopped or pruned else 9
        values = {epoch: epoch / 10 + draw.gauss(0, 0.02) for epoch in range(1, epochs + 1)}
        ending = TOO_HIGH if stopped else TrialEnd("pruned", "worse <b>") if pruned else None
        result = (values[9],) if ending is None else ()
        found.append(Trial(number, parameters, values, result, ending or TrialEnd("finished")))
    return found


def page(found: list[Trial]) -> SweepPage:
    """Return the page of trials."""
    done = [trial for trial in found if trial.result]
    best = [max(done, key=lambda trial: trial.result)] if done else []
    return SweepPage("search", SETTINGS, SPACE, found, best, {"lr": 0.9, "act": 0.1}, "all begun")


class Tags(HTMLParser):
    """Collect the tags of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def read(path: Path) -> list[tuple[str, dict[str, str | None]]]:
    """Return the tags of a page with their attributes."""
    reader = Tags()
    reader.feed(path.read_text(encoding="utf-8"))
    return reader.tags


def test_a_thousand_trials_fit_one_self_contained_page(tmp_path: Path) -> None:
    found = trials(1000)
    path = write_sweep_report(page(found), tmp_path / "sweep.html")
    assert path.stat().st_size < 1_000_000
    tags = read(path)
    assert not [tag for tag, _ in tags if tag in ("script", "link", "iframe")]
    assert not [1 for _, attributes in tags if "src" in attributes or "href" in attributes]
    shown = [one.get("class") for tag, one in tags if tag == "g"]
    # Each trial is a learning curve and a configuration; the others are the legend.
    for state in ("finished", "pruned", "stopped"):
        count = sum(trial.ending.state == state for trial in found)
        assert shown.count(f"trial {state}") == 2 * count


def test_texts_are_escaped(tmp_path: Path) -> None:
    text = write_sweep_report(page(trials(9)), tmp_path / "sweep.html").read_text(encoding="utf-8")
    assert "<b>" not in text.replace("<b>learning rate too high</b>", "")
    assert "worse &lt;b&gt;" in text


def test_stopped_trials_are_grouped_by_cause_with_their_part_of_the_space() -> None:
    found = trials(300)
    [cause] = causes(found, SPACE, [])
    stopped = [trial for trial in found if trial.ending.state == "stopped"]
    assert cause.fault == "learning rate too high"
    assert cause.trials == tuple(stopped)
    assert cause.rules == ("loss_not_decreasing",)
    rates = [float(trial.parameters["lr"]) for trial in stopped]
    # Momentum is anywhere; of the activations one is missing.
    assert cause.where == f"lr {min(rates):.3g} to {max(rates):.3g}, act relu, tanh"
    assert cause.example.ending.remedy == "lr 1 instead of 9"


def test_pruned_trials_that_a_rule_found_broken_count_too(tmp_path: Path) -> None:
    end = TrialEnd("pruned", "not among the best", TOO_HIGH.rule, TOO_HIGH.fault, "lr 2")
    found = trials(30)
    stopped = [trial for trial in found if trial.ending.state == "stopped"]
    pruned = Trial(30, {"lr": 9.0, "act": "relu", "momentum": 0.1}, {1: 0.1}, (), end)
    [cause] = causes([pruned, *found], SPACE, [])
    assert len(cause.trials) == len(stopped) + 1
    assert cause.example == stopped[0]
    text = write_sweep_report(page([pruned]), tmp_path / "p.html").read_text(encoding="utf-8")
    assert "learning rate too high</b>: 1 of 1 trials" in text
    assert "<td>not among the best; broken: loss_not_decreasing</td>" in text


@pytest.mark.parametrize(
    "found",
    [
        [],
        [Trial(0, {"lr": 1.0, "act": "relu", "momentum": 0.0})],
        [Trial(0, {"lr": 1.0, "act": "tanh"}, {1: 0.5}, (0.5,), TrialEnd("finished"))],
        [Trial(0, {"lr": 1.0, "act": "tanh"}, {1: 1e300, 2: -1e300}, (), TrialEnd("failed", "x"))],
    ],
)
def test_a_page_of_few_trials_can_be_written(found: list[Trial], tmp_path: Path) -> None:
    path = write_sweep_report(page(found), tmp_path / "sweep.html")
    assert "nan" not in path.read_text(encoding="utf-8").lower().replace("dominance", "")


def test_trials_link_their_reports(tmp_path: Path) -> None:
    found = trials(9)
    named = replace(page(found), reports={"trial-0003": "trial-0003-2/report.html"})
    path = write_sweep_report(named, tmp_path / "sweep.html")
    links = {attributes["href"] for tag, attributes in read(path) if tag == "a"}
    assert links == {"trial-0003-2/report.html"}
    # In MLflow the reports are not beside the page.
    whole = path.read_text(encoding="utf-8")
    copy = tmp_path / "copy.html"
    copy.write_text(without_links(whole), encoding="utf-8")
    assert [tag for tag, _ in read(copy)] == [tag for tag, _ in read(path) if tag != "a"]
    assert copy.read_text(encoding="utf-8").count("trial-0003") == whole.count("trial-0003") - 1


@pytest.mark.parametrize(
    ("results", "words"), [([], "there are none"), ([0.5] * 9, "there is 1"), ([0.5, 0.6], "are 2")]
)
def test_too_few_results_tell_no_importance(
    results: list[float], words: str, tmp_path: Path
) -> None:
    found = [
        Trial(number, {"lr": 1.0, "act": "tanh"}, {1: value}, (value,), TrialEnd("finished"))
        for number, value in enumerate(results)
    ] or [Trial(0, {"lr": 1.0, "act": "tanh"}, {}, (), TrialEnd("failed"))]
    known = replace(page(found), importance={})
    text = write_sweep_report(known, tmp_path / "sweep.html").read_text(encoding="utf-8")
    assert "Cannot be told: it needs 4 finished trials with different results" in text
    assert words in text
    told = write_sweep_report(page(found), tmp_path / "sweep.html").read_text(encoding="utf-8")
    assert "Cannot be told" not in told


def test_a_population_tells_no_importance(tmp_path: Path) -> None:
    found = [
        Trial(number, {"lr": 1.0}, {}, (number / 9,), TrialEnd("finished"), line=Line(0, number))
        for number in range(6)
    ]
    known = replace(page(found), importance={})
    text = write_sweep_report(known, tmp_path / "sweep.html").read_text(encoding="utf-8")
    assert "Cannot be told: the results of a population depend on the generation, too." in text


def test_the_pareto_front_is_a_chart_in_which_it_is_marked(tmp_path: Path) -> None:
    goals = [
        Objective("accuracy", "maximize"),
        Objective("latency", "minimize"),
    ]
    settings = SweepTable(objectives=goals, trials=9, pruner="none")
    results = [(0.9, 5.0), (0.8, 1.0), (0.7, 3.0), (0.95, 9.0)]
    found = [
        Trial(number, {"lr": 0.1, "act": "<b>"}, {1: one[0]}, one, TrialEnd("finished"))
        for number, one in enumerate(results)
    ]
    best = [found[0], found[1], found[3]]
    space = Space.parse({"lr": {"log": [1e-4, 10.0]}, "act": ["<b>", "tanh"]}, "space")
    shown = SweepPage("search", settings, space, found, best, {}, "all begun")
    text = write_sweep_report(shown, tmp_path / "sweep.html").read_text(encoding="utf-8")
    assert text.count('class="point front"') == 3
    assert text.count('class="point dominated"') == 1
    assert "trial-0001, on the Pareto front: accuracy 0.8, latency 1; lr 0.1, act &lt;b&gt;" in text
    # The border has a corner between two neighbours: better in neither than the worse of them.
    (line,) = [
        one for tag, one in read(tmp_path / "sweep.html") if one.get("class") == "front-line"
    ]
    places = [tuple(map(float, one.split(","))) for one in _points(str(line["d"]))]
    assert [one[0] for one in places] == sorted(one[0] for one in places)
    assert places[1] == (places[0][0], places[2][1])
    assert len(places) == 5


def _points(path: str) -> list[str]:
    """Return the points of a path as "x,y"."""
    numbers = re.findall(r"-?[\d.]+", path)
    return [f"{x},{y}" for x, y in zip(numbers[::2], numbers[1::2], strict=True)]
