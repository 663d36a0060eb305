"""One of several findings is the cause, the others are its symptoms."""

from __future__ import annotations

import itertools
import threading
import time
from dataclasses import replace
from graphlib import TopologicalSorter
from pathlib import Path

from vinedresser.capture import open_run
from vinedresser.objects import LocalStorage
from vinedresser.rules.base import Rule
from vinedresser.rules.causes.chain import brings_about, declaring_rules
from vinedresser.rules.causes.root_cause import cause_of, onset, remedies, root_causes
from vinedresser.rules.faults import FAULTS, STAGES
from vinedresser.rules.judge import judge
from vinedresser.rules.registry import RULES
from vinedresser.store.finding import Finding, Severity
from vinedresser.store.reading.step import Step
from vinedresser.store.records import StopRecord, read_record
from vinedresser.store.writing.writer import RunWriter
from vinedresser.testing.runs import end_run, start_run, step_record


def finding(
    fault: str, step: int = 100, severity: Severity = "stop", rule: str = "", remedy: str = ""
) -> Finding:
    name = rule or fault
    return Finding(
        name, severity, step, step, "train", 0, "", "", 0.0, 0.0, 1.0, "", "", remedy, {}, fault
    )


def test_the_cause_comes_first_whatever_the_order() -> None:
    found = [
        finding("not_learning", 200),
        finding("dying_relu", 120, "warning"),
        finding("learning_rate_too_high", 150, "warning"),
        finding("class_imbalance", 10, "info"),
    ]
    for order in itertools.permutations(found):
        roots = root_causes(order)
        assert [root.finding.fault for root in roots] == [
            "learning_rate_too_high",
            "class_imbalance",
        ]
        assert {symptom.fault for symptom in roots[0].symptoms} == {"not_learning", "dying_relu"}


def test_labels_are_the_cause_of_what_stops_a_run_though_only_a_warning() -> None:
    found = [
        finding("dying_relu", 40),
        finding("learning_rate_too_high", 20),
        finding("not_learning", 226),
        finding("underfitting", 240),
        finding("corrupt_labels", 220, "warning"),
    ]
    for order in itertools.permutations(found):
        (root,) = root_causes(order)
        assert root.finding.fault == "corrupt_labels"
        assert cause_of(found[0], order).fault == "corrupt_labels"


def test_units_that_were_dead_before_the_first_update_are_no_symptom_of_labels() -> None:
    found = [finding("corrupt_labels", 220, "warning"), finding("dying_relu", 0)]
    assert root_causes(found)[0].finding.fault == "dying_relu"


def test_outputs_that_fit_their_loss_at_first_are_no_cause_of_what_was_found_then() -> None:
    early = [finding("loss_output_mismatch", 40), finding("learning_rate_too_high", 20)]
    assert root_causes(early)[0].finding.fault == "loss_output_mismatch"
    late = [finding("loss_output_mismatch", 355), finding("learning_rate_too_high", 20)]
    assert [cause.finding for cause in root_causes([*late, finding("not_learning", 300)])] == late[
        ::-1
    ]


def test_targets_out_of_the_reach_of_the_outputs_are_not_too_large() -> None:
    """One softmax unit for quantities of any size: standardising them would mend nothing."""
    found = [
        finding("unnormalised_targets", 395, "warning"),
        finding("no_signal", 10, "warning"),
        finding("loss_output_mismatch", 10, "warning"),
    ]
    (root,) = root_causes(found)
    assert root.finding.fault == "loss_output_mismatch"


def test_of_causes_of_the_same_severity_the_data_come_first() -> None:
    found = [finding("stalled"), finding("wrong_mode"), finding("token_ratio")]
    order = [root.finding.fault for root in root_causes(found)]
    assert order == ["token_ratio", "stalled", "wrong_mode"]


def test_a_rule_is_no_symptom_of_itself() -> None:
    first = finding("dying_relu", 40, "warning")
    last = finding("dying_relu", 200)
    other = finding("learning_rate_too_high", 60, rule="dying_relu")
    (root,) = root_causes([first, last, other, finding("not_learning", 210)])
    assert root.finding is other
    assert [symptom.rule for symptom in root.symptoms] == ["not_learning"]
    assert root.repeats == (first, last)


def test_the_rule_of_a_fault_explains_graver_findings_of_others_that_name_it() -> None:
    other = finding("corrupt_labels", 160, rule="underfitting")
    named = finding("corrupt_labels", 155, "warning")
    (root,) = root_causes([other, named])
    assert (root.finding, root.symptoms) == (named, (other,))


def test_an_earlier_sign_of_a_fault_is_no_symptom_of_the_rule_of_the_fault() -> None:
    gradient = finding("nonfinite", 1, rule="nonfinite_gradient")
    loss = finding("nonfinite", 2)
    (root,) = root_causes([loss, gradient])
    assert (root.finding, root.symptoms) == (gradient, (loss,))


def test_one_report_changes_each_thing_once() -> None:
    found = [
        finding("data_leakage", remedy="split before"),
        finding("wrong_mode", remedy="call model.train(); lr 0.1 instead of 1"),
        finding("nonfinite", remedy="divide the learning rate by 10"),
        finding("tree_depth", remedy="use a depth of 6"),
    ]
    roots = root_causes(found)
    told = dict(zip([root.finding.fault for root in roots], remedies(roots), strict=True))
    assert told == {
        "data_leakage": "split before",
        "tree_depth": "use a depth of 6",
        "wrong_mode": "call model.train(); lr 0.1 instead of 1",
        "nonfinite": "follow the advice of wrong_mode first, then train again",
    }


def test_what_explains_nothing_stands_alone() -> None:
    found = [finding("overfitting"), finding("tree_depth", severity="warning")]
    assert [len(root.symptoms) for root in root_causes(found)] == [0, 0]
    assert root_causes([]) == []


def test_the_earlier_of_two_is_the_cause() -> None:
    found = [finding("vanishing_gradient", 300), finding("dying_relu", 100)]
    (root,) = root_causes(found)
    assert root.finding.fault == "dying_relu"


def test_shrinking_weights_are_a_symptom_of_a_loss_without_a_gradient() -> None:
    found = [finding("over_regularisation", 360), finding("loss_output_mismatch", 10, "warning")]
    (root,) = root_causes(found)
    assert root.finding.fault == "loss_output_mismatch"


def test_a_cause_does_not_begin_after_its_symptoms() -> None:
    cause, symptom = finding("unbounded_loss", 300), finding("learning_rate_too_high", 100)
    other = finding("overfitting", 20, "warning")
    found = [symptom, cause, other]
    assert root_causes(found)[0].finding is cause
    assert [onset(one, found) for one in found] == [100, 100, 20]


def test_steps_rule_out_some_causes() -> None:
    labels = finding("corrupt_labels", 300)
    for since, count in ((0, 2), (20, 1)):
        dead = replace(finding("dying_relu", 120), since=since)
        assert len(root_causes([labels, dead])) == count
    # Outputs that fit their loss at first were changed by what came before.
    for since, count in ((99, 1), (500, 2)):
        outputs = finding("loss_output_mismatch", since)
        assert len(root_causes([outputs, finding("underfitting", 200)])) == count


def test_labels_and_a_decay_that_leaves_no_weights() -> None:
    """Only labels in which nothing was found are explained; other signs of them stand alone."""
    sign = finding("corrupt_labels", 400, "warning")
    nothing = replace(sign, statistic="loss")
    for hopeless, labels, expected in (
        (True, nothing, ["over_regularisation"]),
        (True, sign, ["over_regularisation", "corrupt_labels"]),
        (False, nothing, ["corrupt_labels"]),
    ):
        decay = replace(finding("over_regularisation", 600), evidence={"hopeless": hopeless})
        roots = root_causes([labels, decay])
        assert [root.finding.fault for root in roots] == expected


def test_labels_that_are_named_because_nothing_else_was_found_are_a_symptom_of_outputs() -> None:
    outputs = finding("loss_output_mismatch", 0, "warning")
    for rule, count in (("underfitting", 1), ("corrupt_labels", 2)):
        labels = finding("corrupt_labels", 31, "warning", rule)
        assert len(root_causes([labels, outputs])) == count


def test_a_fault_with_which_nothing_can_be_learned_comes_before_one_of_the_data() -> None:
    inputs, outcome = finding("unnormalised_inputs", 20), finding("underfitting", 100)
    outputs = finding("loss_output_mismatch", 10)
    for hopeless, first in ((False, inputs), (True, outputs)):
        found = [inputs, outcome, replace(outputs, evidence={"hopeless": hopeless})]
        root, other = root_causes(found)
        assert (root.finding.rule, root.symptoms) == (first.rule, (outcome,))
        assert other.symptoms == ()


def test_every_fault_is_known_and_none_brings_about_itself() -> None:
    assert set(declaring_rules()) == set(FAULTS)
    for rule in declaring_rules().values():
        assert set(rule.consequences) <= {*FAULTS, *STAGES}
    assert not any(brings_about(fault, fault) for fault in FAULTS)
    assert not brings_about("", "not_learning")
    assert not brings_about("of a newer version", "not_learning")


def test_causes_and_effects_form_no_circle_but_those_of_decay() -> None:
    # Decay shrinks weights until no gradient passes, and without a gradient it does; the earlier
    # finding decides between them. It also shrinks them where there is nothing to learn; only a
    # decay that outweighs any gradient explains that nothing is.
    both = {
        ("vanishing_gradient", "over_regularisation"),
        ("over_regularisation", "corrupt_labels"),
    }
    assert all(brings_about(*one) for one in both)
    effects = {
        cause: {one for one in FAULTS if brings_about(cause, one) and (cause, one) not in both}
        for cause in FAULTS
    }
    # Fails for a circle.
    TopologicalSorter(effects).prepare()


def test_one_rule_declares_what_a_fault_brings_about() -> None:
    for rule in RULES.values():
        if declaring_rules().get(rule.fault) is not rule:
            assert not {"stage", "consequences", "cause_unknown"} & set(vars(rule)), rule.name


class Reports(Rule):
    """Reports one fault at one step."""

    needs = ()

    def __init__(self, kind: str, at: int, weight: Severity = "stop") -> None:
        self.kind = kind
        self.at = at
        self.weight = weight

    def update(self, step: Step) -> Finding | None:
        return finding(self.kind, step.step, self.weight) if step.step == self.at else None


def test_a_run_is_stopped_for_the_root_cause(tmp_path: Path) -> None:
    start_run(tmp_path)
    storage = LocalStorage(tmp_path)
    # A warning alone does not end the run.
    cause, end = Reports("learning_rate_too_high", 1, "warning"), Reports("not_learning", 3)
    told: list[Finding] = []
    judging = threading.Thread(
        target=lambda: judge(
            open_run(tmp_path), [cause, end], live=True, on_finding=told.append, poll=0.01
        )
    )
    judging.start()
    writer = RunWriter(storage, 0)
    for step in range(5):
        writer.add(step_record(step, scalars={"losses/a": 1.0}))
    deadline = time.monotonic() + 30
    while (stop := read_record(storage, StopRecord)) is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    writer.close()
    end_run(tmp_path, "stopped")
    judging.join(30)
    assert [one.rule for one in told] == ["learning_rate_too_high", "not_learning"]
    assert (stop.rule, stop.step) == ("learning_rate_too_high", 3)
