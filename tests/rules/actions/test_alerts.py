"""Messages about a run: one per root cause, however often its rules fire."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.rules.actions.servers import web_server
from tests.rules.actions.test_judge import Judged, said
from tests.waiting import until
from vinedresser.errors import ConfigError
from vinedresser.rules.actions import alerts as alerts_module
from vinedresser.rules.actions.alerts import Alerts, Message
from vinedresser.rules.actions.dispatcher import Dispatcher
from vinedresser.rules.actions.journal import unsent
from vinedresser.rules.actions.message import document, text
from vinedresser.rules.actions.payloads import payload
from vinedresser.rules.actions.plan import ActionPlan
from vinedresser.rules.actions.settings import NotifySettings
from vinedresser.rules.causes.root_cause import RootCause
from vinedresser.store.finding import CAUGHT_UP, MISSED, Finding
from vinedresser.store.reading.reader import open_run
from vinedresser.tasks.lifecycle.run_result import run_result
from vinedresser.testing.runs import start_run, step_record

RULE = """
from vinedresser.rules.base import Rule
from vinedresser.rules.need import Need
from vinedresser.store.finding import Finding

class HighLoss(Rule):
    needs = (Need("losses", every=1),)

    def update(self, step):
        if step.mode != "train" or not 5 <= step.step < 192:
            return None
        return Finding("high_loss", "warning", step.step, step.step, "train", 0, "losses/a",
                       "loss", 9.0, 1.0, 1.0, f"loss 9 at step {step.step}", "", "")
"""


def finding(rule: str, step: int, severity: Any = "warning", fault: str = "") -> Finding:
    return Finding(
        *(rule, severity, step, step, "train", 0, "w", "l2", 1.0, 0.0, 1.0),
        *(f"{rule} at {step}", "", ""),
        fault=fault,
    )


class Sent:
    """The messages of judges of one run, as a journal keeps them."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.journal: dict[tuple[object, ...], tuple[float, int]] = {}

    def judged(self, findings: Iterable[Finding | int], cooldown: float = 1e6) -> list[str]:
        """Judge; numbers are train steps. Return the kind and rule of each message."""
        known, before = dict(self.journal), len(self.messages)
        alerts = Alerts(cooldown, self.send, lambda one: known.get(self.key(one)))
        for one in findings:
            if isinstance(one, Finding):
                alerts.add(one, ["notify"])
            else:
                alerts.see(_Step(one))  # type: ignore[arg-type]
        alerts.close()
        return [f"{one.kind} {one.cause.finding.rule}" for one in self.messages[before:]]

    def send(self, message: Message) -> None:
        self.messages.append(message)
        self.journal[self.key(message)] = (time.time(), message.step)

    @staticmethod
    def key(message: Message) -> tuple[object, ...]:
        rule = message.cause.finding.rule
        return message.action, message.kind, rule, message.severity, message.number


def much_later(findings: list[Finding]) -> list[str]:
    """Return the kind and rule of each message that follows a long silence after findings."""
    sent = Sent()
    assert sent.judged(findings)
    return sent.judged([*findings, 100_000])


class _Step:
    """What is looked at of a step."""

    mode = "train"

    def __init__(self, step: int) -> None:
        self.step = step


def test_a_rule_that_fires_at_every_step_sends_one_message() -> None:
    sent = Sent()
    assert sent.judged(finding("high_loss", step) for step in range(187)) == ["problem high_loss"]
    (message,) = sent.messages
    assert (message.findings, message.step, message.cause.finding.step) == (187, 186, 0)


def test_symptoms_are_inside_the_message_about_their_root_cause() -> None:
    sent = Sent()
    rate, effect = "learning_rate_too_high", "dying_relu"
    told = sent.judged([finding(effect, 3, fault=effect), finding(rate, 9, fault=rate)])
    assert told == [f"problem {rate}"]
    assert [one.rule for one in sent.messages[0].cause.symptoms] == [effect]
    assert sent.messages[0].findings == 2


def test_another_root_cause_and_a_more_severe_finding_are_reported() -> None:
    sent = Sent()
    first = [finding("a", 1), finding("b", 2)]
    assert sent.judged(first) == ["problem a", "problem b"]
    # A judge that begins again sends nothing twice, nor does more of the same.
    assert sent.judged([*first, finding("a", 7)]) == []
    assert sent.judged([*first, finding("a", 7), finding("a", 8, "stop")]) == ["problem a"]
    assert sent.messages[-1].severity == "stop"
    assert sent.judged([*first, finding("a", 8, "stop")]) == []


def test_after_the_cooldown_new_findings_are_reported_again() -> None:
    sent = Sent()
    assert sent.judged([finding("a", 1)]) == ["problem a"]
    assert sent.judged([finding("a", 1)], cooldown=0.0) == []
    assert sent.judged([finding("a", 1), finding("a", 2)], cooldown=0.0) == ["again a"]
    assert sent.judged([finding("a", 1), finding("a", 2)], cooldown=0.0) == []
    more = [finding("a", step) for step in (1, 2, 3)]
    assert sent.judged(more, cooldown=0.0) == ["again a"]
    assert sent.messages[-1].findings == 3


def test_a_fault_that_is_over_is_reported_once() -> None:
    sent = Sent()
    fired = [finding("a", step) for step in (10, 20, 30)]
    # Ten times the gaps of ten steps.
    assert sent.judged([*fired, 130]) == ["problem a"]
    assert sent.judged([*fired, 131, 140]) == ["recovered a"]
    assert "has not fired for 101 steps; before, it fired 3 times" in sent.messages[-1].said
    assert sent.judged([*fired, 131, 140]) == []
    # What fired twice may come a third time at any moment.
    assert much_later(fired) == ["recovered a"]
    assert much_later(fired[:2]) == []


def test_a_rule_that_reports_each_tensor_once_does_not_recover_by_silence() -> None:
    each = [replace(finding("a", step), tensor=f"w{step}") for step in (10, 20, 30)]
    assert much_later(each) == []
    # Nor do three tensors at one step, or three limits of one quantity.
    at_once = [replace(one, step=10) for one in each]
    assert much_later(at_once) == []
    limits = [replace(finding("a", step), threshold=float(step)) for step in (10, 20, 30)]
    assert much_later(limits) == []


def test_a_fault_is_not_over_while_it_may_have_become_more_severe() -> None:
    warnings = [finding("a", step, fault="a") for step in (10, 20, 30)]
    worse = finding("a", 35, "stop", fault="a")
    assert much_later([*warnings, worse]) == []
    # Another fault of the rule is over by itself.
    other = finding("a", 35, "stop", fault="b")
    sent = Sent()
    sent.judged([*warnings, other])
    assert sent.judged([*warnings, other, 100_000]) == ["recovered a"]
    assert sent.messages[-1].cause.finding.fault == "a"


def test_classes_recover_when_all_of_them_have_caught_up() -> None:
    lost = replace(finding("class_imbalance", 5), evidence={MISSED: {"3": 0.9, "7": 0.8}})
    caught = [
        replace(finding("class_imbalance", step, "info"), evidence={CAUGHT_UP: {name: 0.1}})
        for step, name in ((9, "3"), (12, "7"))
    ]
    sent = Sent()
    assert sent.judged([lost]) == ["problem class_imbalance"]
    assert sent.judged([lost, caught[0]]) == []
    assert sent.judged([lost, *caught]) == ["recovered class_imbalance"]


def test_a_cooldown_may_be_longer_than_a_thread_can_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alerts_module, "_GATHER", 0.0)
    sent = Sent()
    alerts = Alerts(1e300, sent.send, lambda _: None)
    alerts.add(finding("a", 1, fault="a"), ["notify"])
    until(lambda: len(sent.messages) == 1)
    alerts.add(finding("a", 2, fault="a"), ["notify"])
    until(lambda: (alerts._due or 0.0) > 1e299, "it waits for the cool-down")
    alerts.add(finding("a", 3, "stop", fault="a"), ["notify"])
    until(lambda: len(sent.messages) == 2)
    alerts.close()
    assert [one.severity for one in sent.messages] == ["warning", "stop"]


def test_a_mail_about_a_recovery_says_so(tmp_path: Path) -> None:
    start_run(tmp_path / "run")
    run, said = open_run(tmp_path / "run").info, "steps end again, as of step 6"
    cause = RootCause(finding("stalled_training", 5), ())
    told = document(run, "runs/a", cause, "1", kind="recovered", said=said)
    assert f"Recovered:  {said}\n" in text(told)
    assert "Recovered" not in text(document(run, "runs/a", cause, "1"))


def test_a_stall_and_a_class_that_caught_up_are_over() -> None:
    stall = finding("stalled_step", 5, fault="stalled")
    sent = Sent()
    assert sent.judged([stall, 5]) == ["problem stalled_step"]
    assert sent.judged([stall, 6]) == ["recovered stalled_step"]
    lost = finding("class_imbalance", 5)
    caught = replace(finding("class_imbalance", 9, "info"), evidence={CAUGHT_UP: {"3": 0.1}})
    sent = Sent()
    assert sent.judged([caught]) == []
    assert sent.judged([lost]) == ["problem class_imbalance"]
    assert sent.judged([lost, caught]) == ["recovered class_imbalance"]


@pytest.mark.thorough
def test_a_judge_of_a_rule_that_fires_187_times_posts_once(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(RULE)
    with web_server([]) as server:
        judged = Judged(tmp_path, {"on_warning": ["notify"], "notify": {"webhook": server.url}})
        spec = json.loads(judged.spec.read_text())
        spec["rules"] = {f"{tmp_path / 'own.py'}:HighLoss": {}}
        judged.spec.write_text(json.dumps(spec))
        for step in range(21, 200):
            judged.writer.add(step_record(step, scalars={"losses/a": 1.0}))
        judged.over()
        said(judged.start())
        assert len(open_run(judged.path).findings()) == 187
        assert server.asked == 1
        assert said(judged.start()) == ""
        assert server.asked == 1
    ((_, told),) = server.taken
    assert told["kind"] == "problem"
    assert told["finding"]["step"] == 5
    assert told["findings"] > 1


@pytest.mark.thorough
def test_a_server_that_always_fails_is_reported_once_with_the_run(tmp_path: Path) -> None:
    with web_server([500] * 100) as server:
        notify = {"webhook": server.url, "patience": 0.1}
        judged = Judged(tmp_path, {"on_stop": ["stop", "notify"], "notify": notify})
        worker = judged.start()
        until(judged.stop)
        judged.over()
        said(worker)
    (problem,) = unsent(judged.storage, [])
    assert problem.startswith("action notify failed: 127.0.0.1")
    assert problem in run_result(judged.path).notes
    assert "secret-path" not in problem


def test_a_message_is_sent_although_the_record_of_the_run_is_damaged(tmp_path: Path) -> None:
    with web_server([]) as server:
        start_run(tmp_path / "run")
        run = open_run(tmp_path / "run")
        tables = {"on_warning": ["notify"], "notify": {"webhook": server.url}}
        dispatcher = Dispatcher(run, ActionPlan.from_tables(tables, {}), "all")
        (tmp_path / "run" / "run.json").write_text("nonsense")
        dispatcher.take(finding("a", 1))
        dispatcher.close()
    ((_, told),) = server.taken
    assert told["run"]["id"] == run.info.id


DOCUMENT = {
    "id": "1",
    "text": "run & <!channel>: nonfinite (stop) at step 7: [the](http://x) loss\nis NaN",
    "facts": {"Run": "run & <!channel>", "Try": "", "Seen": "*x* " * 2000},
}


def test_slack_gets_text_without_markup() -> None:
    told = payload(DOCUMENT, "slack")
    assert told["text"].startswith("run &amp; &lt;!channel&gt;: nonfinite (stop) at step 7")
    assert {block["text"]["type"] for block in told["blocks"]} == {"plain_text"}
    # Slack takes 3,000 characters in a section, and no empty one.
    assert all(0 < len(block["text"]["text"]) <= 3000 for block in told["blocks"])
    assert "Try" not in json.dumps(told)


def test_teams_gets_an_adaptive_card_without_markdown() -> None:
    (attachment,) = payload(DOCUMENT, "teams")["attachments"]
    assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
    body = attachment["content"]["body"]
    assert {block["type"] for block in body} == {"RichTextBlock"}
    assert "[the](http://x) loss is NaN" in body[0]["inlines"][0]["text"]
    assert len(json.dumps(attachment)) < 28_000


def test_plain_json_is_the_document() -> None:
    assert payload(DOCUMENT, "json") == DOCUMENT


@pytest.mark.parametrize(
    "url",
    [
        "https://hooks.slack.com/services/T0/B0/hidden",
        "https://corp.webhook.office.com/webhookb2/hidden",
        "https://example.org/post?sig=hidden",
        "http://example.org/hidden",
        "https://example.org:hidden/",
        "https://example.org/hid den",
        "ftp://example.org/hidden",
    ],
)
def test_a_url_that_may_be_secret_is_neither_stored_nor_printed(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError) as caught:
        ActionPlan.from_tables({"notify": {"webhook": url}}, {})
    assert "hid" not in str(caught.value)
    monkeypatch.setenv("ALERTS_URL", url)
    if url.startswith("https") and url.isprintable() and " " not in url and ":hid" not in url:
        assert NotifySettings(webhook_variable="ALERTS_URL", format="slack").url() == url
    else:
        with pytest.raises(ConfigError) as caught:
            ActionPlan.from_tables({"notify": {"webhook_variable": "ALERTS_URL"}}, {})
        assert "hid" not in str(caught.value)


def test_a_secret_in_place_of_a_variable_is_not_printed() -> None:
    url = "https://hooks.slack.com/services/T0/B0/hidden"
    with pytest.raises(ConfigError, match="webhook_variable: must be the name of") as caught:
        ActionPlan.from_tables({"notify": {"webhook_variable": url}}, {})
    assert "hid" not in str(caught.value)


def test_a_chat_program_needs_a_variable() -> None:
    with pytest.raises(ValueError, match="webhook_variable"):
        NotifySettings(webhook="https://chat.example.org/hooks/1", format="slack")
    NotifySettings(webhook="http://127.0.0.1:1/hooks/1", format="teams")


@pytest.mark.parametrize(
    ("cooldown", "message"),
    [
        ("soon", r'actions\.cooldown: must be a time such as "90 s"'),
        (-1, r'actions\.cooldown: must be a time such as "30 min", or seconds, not -1'),
        (True, r"actions\.cooldown: must be a time"),
    ],
)
def test_an_invalid_cooldown_is_named(cooldown: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ActionPlan.from_tables({"cooldown": cooldown}, {})


def test_a_cooldown_is_a_time() -> None:
    assert ActionPlan.from_tables({"cooldown": "30 min"}, {}).cooldown == 1800
    assert ActionPlan.from_tables({"cooldown": 0}, {}).cooldown == 0
