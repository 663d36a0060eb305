"""Several rules together: needs, missing data, and effects on each other."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from vinedresser.capture.config.capture_config import Ask, CaptureConfig
from vinedresser.errors import ConfigError
from vinedresser.objects import LocalStorage
from vinedresser.rules.base import Rule, capture_for
from vinedresser.rules.engine import Engine
from vinedresser.rules.judge import judge
from vinedresser.rules.losses.overfitting import Overfitting
from vinedresser.rules.need import Need
from vinedresser.rules.registry import RULES
from vinedresser.rules.signals.base import Signal
from vinedresser.store.collections.schedule import SaveConfig
from vinedresser.store.finding import Finding, Severity
from vinedresser.store.reading.reader import Run, open_run
from vinedresser.store.reading.step import Step
from vinedresser.store.records import (
    ChecksRecord,
    ClaimRecord,
    ExitCause,
    ExitRecord,
    RunRecord,
    StopBy,
    StopRecord,
    read_record,
    write_first,
    write_record,
)
from vinedresser.store.step_record import StepRecord
from vinedresser.testing.runs import make_run, step_record

LOSS = "losses/CrossEntropyLoss"


class LossAbove(Rule):
    """A loss lies above a limit.

    Args:
        limit: maximum loss.
    """

    severity: Severity = "info"

    def __init__(self, limit: float = 2.0) -> None:
        self.limit = limit
        self.needs = (Need("losses"),)
        self.began: list[str] = []

    def begin(self, info: RunRecord) -> None:
        self.began.append(info.name)

    def update(self, step: Step) -> Finding | None:
        values = step.scalars_of("losses")
        if max(values.values(), default=0.0) <= self.limit:
            return None
        return self.found(
            step,
            since=step.step,
            tensor=LOSS,
            statistic="loss",
            value=step.scalars[LOSS],
            threshold=self.limit,
            confidence=1.0,
            seen=f"{LOSS} is {step.scalars[LOSS]:g} in {self.began[0]}",
            cause="",
            remedy="",
            evidence={},
        )


class Broken(Rule):
    """Fails at step 3."""

    needs = (Need("losses"),)

    def update(self, step: Step) -> Finding | None:
        if step.step == 3:
            raise ZeroDivisionError("no mean of nothing")
        return None


class Finisher(Rule):
    """Reports the number of steps at the end."""

    severity = "info"
    needs = ()

    def __init__(self) -> None:
        self.last: Step | None = None
        self.steps = 0

    def update(self, step: Step) -> Finding | None:
        self.last = step
        self.steps += 1
        return None

    def finish(self) -> Finding | None:
        assert self.last is not None
        seen = f"{self.steps} steps"
        return Finding(self.name, "info", 0, 0, "train", 0, "", "", 0.0, 0.0, 1.0, seen, "", "", {})

    def finish_early(self) -> Finding | None:
        found = self.finish()
        assert found is not None
        assert self.last is not None
        return replace(found, seen=f"cut at {self.last.step}")


def losses(*values: float) -> list[StepRecord]:
    return [step_record(step, scalars={LOSS: value}) for step, value in enumerate(values)]


def test_a_rule_is_named_after_its_class() -> None:
    assert LossAbove.name == "loss_above"
    assert LossAbove(limit=3.0).params == {"limit": 3.0}


def test_rules_get_every_step_and_the_run_record(tmp_path: Path) -> None:
    run = make_run(tmp_path, losses(1, 3, 1, 4), name="digits")
    found = judge(run, [LossAbove(), Finisher()])
    assert [one.seen for one in found] == [
        f"{LOSS} is 3 in digits",
        f"{LOSS} is 4 in digits",
        "4 steps",
    ]


@pytest.mark.parametrize(
    ("cause", "by", "told"),
    [
        ("finished", None, ["4 steps"]),
        ("stopped", "rule", ["4 steps"]),
        ("stopped", "person", ["cut at 3"]),
        ("stopped", "sweep", ["cut at 3"]),
        ("stopped", "owner", ["cut at 3"]),
        ("crashed", None, ["cut at 3"]),
        ("killed", None, ["cut at 3"]),
    ],
)
def test_the_end_of_a_run_that_others_ended_is_not_judged(
    cause: ExitCause, by: StopBy | None, told: list[str], tmp_path: Path
) -> None:
    run = make_run(tmp_path, losses(1, 1, 1, 1))
    stop = StopRecord(by, "", 0.0) if by else None
    write_record(LocalStorage(tmp_path), ExitRecord(cause, "", time.time(), stop=stop))
    assert [one.seen for one in judge(run, [Finisher()])] == told


def test_the_given_rules_are_not_changed(tmp_path: Path) -> None:
    run = make_run(tmp_path, losses(1, 3))
    rules = [LossAbove(), Finisher()]
    first = judge(run, rules)
    assert judge(run, rules) == first
    assert rules[1].params == {}
    assert rules[0].began == []  # type: ignore[attr-defined]


def test_a_rule_that_fails_is_disabled_and_the_others_continue(tmp_path: Path) -> None:
    run = make_run(tmp_path, losses(1, 1, 1, 1, 1, 3))
    failed, other = judge(run, [Broken(), LossAbove()])
    assert (failed.rule, failed.severity, failed.step) == ("broken", "warning", 3)
    assert failed.seen == "the rule itself failed: ZeroDivisionError: no mean of nothing"
    assert (other.rule, other.step) == ("loss_above", 5)


def test_needs_become_the_capture_configuration() -> None:
    class Greedy(Rule):
        """Has needs of all kinds."""

        needs = (
            Need("losses", modes=("train", "eval")),
            Need("gradients", every=7, reductions=("l2",)),
            Need("weights", every=50, tensor=True),
            Need("relus", every=3, reductions=("zero_share",), regex=r"outputs/relu"),
        )

        def update(self, step: Step) -> Finding | None:
            return None

    config = capture_for([Greedy()])
    assert config.asks("losses/x", 5, "eval")
    assert config.asks("gradients/a", 7, "train") == Ask(False, frozenset({"l2"}))
    assert not config.asks("gradients/a", 8, "train")
    assert config.asks("weights/a", 50, "train").tensor
    assert config.asks("outputs/relu1", 3, "train").reductions == {"zero_share"}
    assert not config.asks("biases/a", 0, "train")


def test_needs_of_several_rules_are_united() -> None:
    config = capture_for(kind() for kind in RULES.values())
    asked = config.asks("gradients/a", 0, "train")
    assert asked.reductions == {"l2", "abs_mean", "nonfinite", "zero_share", "fingerprint"}
    assert not asked.tensor


def test_a_need_of_an_unknown_collection_is_refused() -> None:
    class Misspelt(Rule):
        """Needs an unknown collection."""

        needs = (Need("gradient", reductions=("l2",)),)

        def update(self, step: Step) -> Finding | None:
            return None

    with pytest.raises(ConfigError, match=r"did you mean gradients\?"):
        capture_for([Misspelt()])


def checks(run: Run, rules: list[Rule]) -> ChecksRecord:
    """Judge a run in which the rules find nothing; return what they checked."""
    found = judge(run, rules)
    assert found == []
    assert found.checks is not None
    return found.checks


def test_a_rule_without_data_is_named_at_the_end(tmp_path: Path) -> None:
    run = make_run(tmp_path, [step_record(step, scalars={"loss": 1.0}) for step in range(3)])
    checked = checks(run, [LossAbove()])
    assert checked.rules == ["loss_above"]
    assert checked.lacking == {"loss_above": ["losses"]}
    assert checked.lacks == "no losses (1 rule)"
    assert "watch(model, loss=…)" in checked.advice
    assert checked.ended


@pytest.mark.parametrize(
    ("framework", "attached", "part"),
    [
        ("torch", True, "losses are seen in the backward pass"),
        ("xgboost", True, "evals="),
        ("torch", False, "watch(model, loss=…)"),
        ("xgboost", False, "evals="),
    ],
)
def test_the_advice_fits_the_framework_and_a_script_without_a_hook(
    framework: str, attached: bool, part: str, tmp_path: Path
) -> None:
    run = make_run(tmp_path, [step_record(step, scalars={"loss": 1.0}) for step in range(3)])
    write_record(run.storage, replace(run.info, framework=framework))
    if attached:
        write_first(run.storage, ClaimRecord("{}"))
    assert part in checks(open_run(tmp_path), [LossAbove()]).advice


def test_data_that_come_later_are_not_missing(tmp_path: Path) -> None:
    later = {"losses/loss": 1.0}
    run = make_run(
        tmp_path, [step_record(step, scalars=later if step else {}) for step in range(3)]
    )
    assert checks(run, [LossAbove()]) == ChecksRecord(["loss_above"], ended=True)


def test_what_several_rules_lack_is_counted(tmp_path: Path) -> None:
    class Other(LossAbove):
        pass

    run = make_run(tmp_path, [step_record(step, scalars={"loss": 1.0}) for step in range(3)])
    checked = checks(run, [LossAbove(), Other(), RULES["vanishing_gradient"]()])
    assert checked.lacks == "no losses (3 rules), no gradients (1 rule)"
    assert [*checked.lacking] == ["loss_above", "other", "vanishing_gradient"]
    # At the end of a run without a step, too.
    empty = checks(make_run(tmp_path / "empty", []), [LossAbove(), Other()])
    assert empty.lacks == "no losses (2 rules)"


@pytest.mark.parametrize("cause", ["crashed", "stopped", "killed"])
def test_a_run_that_was_cut_short_lacks_nothing(
    cause: Literal["crashed", "stopped", "killed"], tmp_path: Path
) -> None:
    run = make_run(tmp_path, [step_record(0, scalars={"loss": 1.0})])
    record = read_record(run.storage, ExitRecord)
    assert record is not None
    write_record(run.storage, replace(record, cause=cause))
    assert checks(open_run(tmp_path), [LossAbove(), Overfitting()]).lacking == {}


def test_missing_statistics_are_named(tmp_path: Path) -> None:
    records = [
        step_record(step, scalars={LOSS: 1.0}, reductions={"gradients/a": {"l2": 1.0}})
        for step in range(3)
    ]
    checked = checks(make_run(tmp_path, records), [RULES["vanishing_gradient"]()])
    assert checked.lacks == "no abs_mean of gradients (1 rule)"


def test_a_run_that_only_evaluates_lacks_train_steps(tmp_path: Path) -> None:
    run = make_run(tmp_path, [step_record(0, mode="eval", scalars={"metrics/figure": 1.0})])
    checked = checks(run, [RULES["vanishing_gradient"](), Overfitting(), RULES["nonfinite"]()])
    assert checked.lacks == "no train steps (3 rules)"


def test_a_run_without_a_network_lacks_what_only_networks_have(tmp_path: Path) -> None:
    # Reported steps, without evaluations.
    run = make_run(tmp_path, losses(1, 1, 1))
    checked = checks(run, [RULES["vanishing_gradient"](), Overfitting(), RULES["nonfinite"]()])
    assert checked.lacks == "no gradients (1 rule), no evaluations (1 rule)"


@pytest.mark.parametrize(
    ("framework", "ranks", "judging"),
    [
        ("torch", 1, ["vanishing_gradient"]),
        ("torch", 2, ["vanishing_gradient", "rank_data"]),
        ("keras", 2, ["vanishing_gradient"]),
        ("xgboost", 1, ["tree_depth"]),
    ],
)
def test_rules_that_do_not_apply_are_not_counted(
    framework: str, ranks: int, judging: list[str], tmp_path: Path
) -> None:
    run = make_run(tmp_path, losses(1, 1, 1))
    info = replace(run.info, framework=framework, world_size=ranks)
    write_record(run.storage, info)
    kinds = ("vanishing_gradient", "rank_data", "tree_depth")
    assert checks(open_run(tmp_path), [RULES[kind]() for kind in kinds]).rules == judging


def test_a_collection_that_the_user_named_must_exist_in_any_run(tmp_path: Path) -> None:
    class OfOne(Rule):
        def __init__(self, collection: str = "losses") -> None:
            self.collection = collection
            self.needs = (Need(collection, reductions=("l2",)),)

        def update(self, step: Step) -> Finding | None:
            return None

    (finding,) = judge(make_run(tmp_path, losses(1, 1)), [OfOne("gradients")])
    assert finding.severity == "warning"
    assert finding.seen.startswith("there is no l2 of gradients at train step 0")


def test_a_silent_rule_reports_nothing_after_a_stop(tmp_path: Path) -> None:
    class Last(LossAbove):
        silent_after_stop = True

    run = make_run(tmp_path, losses(1, 1, 3))
    assert [one.rule for one in judge(run, [Last()])] == ["last"]
    assert [one.rule for one in judge(run, [LossAbove(), Last()])] == ["loss_above", "last"]
    first = LossAbove()
    first.severity = "stop"
    assert [one.rule for one in judge(run, [first, Last()])] == ["loss_above"]


def test_corrupt_data_are_reported_once_and_the_rest_is_judged(tmp_path: Path) -> None:
    run = make_run(tmp_path, losses(1, 3))
    (segment,) = run.storage.list("segments/")
    content = bytearray(run.storage.get(segment))
    content[-3] ^= 0x10
    run.storage.put(segment, [bytes(content)])
    found = judge(run, [LossAbove(), Finisher()])
    assert [(one.rule, one.severity) for one in found] == [
        ("loss_above", "warning"),
        ("finisher", "info"),
    ]
    assert segment.rpartition("/")[2] in found[0].seen


def test_the_engine_is_a_fold(tmp_path: Path) -> None:
    run = make_run(tmp_path, losses(1, 3, 4))
    engine = Engine([LossAbove()])
    engine.begin(run.info)
    steps = [engine.update(step) for step in run.follow()]
    assert [len(found) for found in steps] == [0, 1, 1]
    assert engine.finish() == []


class Layers(Signal):
    """The order of the layers, which the hook completes."""

    def __init__(self) -> None:
        self.orders: list[list[str]] = []

    def begin(self, info: RunRecord) -> None:
        self.orders = [["begun", info.name]]

    def on_record(self, info: RunRecord) -> None:
        self.orders.append(info.order)

    def update(self, step: Step) -> None:
        """Do nothing."""


class ReadsRecord(Rule):
    """Reports how often it and its signal have read the record, and what it was."""

    severity = "info"

    def __init__(self) -> None:
        self.layers = Layers()
        self.orders: list[list[str]] = []

    def on_record(self, info: RunRecord) -> None:
        self.orders.append(info.order)

    def update(self, step: Step) -> Finding | None:
        return self.found(
            step,
            since=step.step,
            tensor="",
            statistic="",
            value=0.0,
            threshold=0.0,
            confidence=1.0,
            seen="",
            cause="",
            remedy="",
            evidence={"rule": self.orders, "signal": self.layers.orders},
        )


def test_the_record_is_read_after_the_start_and_whenever_it_is_completed(tmp_path: Path) -> None:
    run = make_run(tmp_path, losses(1, 1))
    first, second = run.follow()
    engine = Engine([ReadsRecord()])
    engine.begin(run.info)
    (before,) = engine.update(first)
    assert before.evidence == {"rule": [[]], "signal": [["begun", run.info.name], []]}
    engine.on_record(replace(run.info, order=["weights/a"]))
    (after,) = engine.update(second)
    assert after.evidence["rule"] == [[], ["weights/a"]]
    assert after.evidence["signal"][1:] == [[], ["weights/a"]]


def test_capture_that_a_user_asked_for_is_kept_beside_the_rules_needs() -> None:
    users = CaptureConfig.of({"gradients": SaveConfig(every=500, tensor=True)})
    both = users.merged(capture_for([RULES["vanishing_gradient"]()]))
    assert both.asks("gradients/a", 500, "train") == Ask(True, frozenset({"abs_mean"}))
    assert not both.asks("gradients/a", 20, "train").tensor
