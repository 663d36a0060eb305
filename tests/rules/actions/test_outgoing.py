"""Findings reach servers, people and programs; failures are retried or reported."""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from collections.abc import Iterator
from email import message_from_string, policy
from pathlib import Path
from typing import Any

import pytest

from tests.rules.actions.servers import WebServer, mail_server, web_server
from vinedresser.errors import ConfigError
from vinedresser.objects import LocalStorage
from vinedresser.rules.actions.base import ActionContext
from vinedresser.rules.actions.command import CommandAction
from vinedresser.rules.actions.mail import EmailAction
from vinedresser.rules.actions.message import action_id, document
from vinedresser.rules.actions.notify import NotifyAction
from vinedresser.rules.actions.plan import ActionPlan
from vinedresser.rules.actions.settings import CommandSettings, EmailSettings, NotifySettings
from vinedresser.rules.causes.root_cause import RootCause
from vinedresser.store.finding import Finding
from vinedresser.store.records import RunRecord

FINDING = Finding(
    *("nonfinite", "stop", 7, 6, "train", 0, "losses/x", "value", float("nan"), 0.0, 1.0),
    *("the loss is NaN\nat once", "overflow", "divide by 10", {"norms": [1.0, float("inf")]}),
)
RUN = RunRecord(id="a" * 32, name="run\nof\r\nlines", created=1.0, command=["python", "secret"])


@pytest.fixture
def context(tmp_path: Path) -> ActionContext:
    identity = action_id(RUN.id, FINDING, "notify")
    told = document(RUN, "runs/x", RootCause(FINDING, ()), identity)
    return ActionContext(identity, FINDING, LocalStorage(tmp_path), told, threading.Event())


@pytest.fixture
def flaky() -> Iterator[WebServer]:
    with web_server([503, 429]) as server:
        yield server


@pytest.mark.thorough
def test_a_server_that_fails_twice_gets_the_finding_once(
    context: ActionContext, flaky: WebServer
) -> None:
    result = NotifyAction(NotifySettings(webhook=flaky.url)).take(context)
    assert result.word == "done"
    ((key, told),) = flaky.taken
    assert flaky.asked == 3
    assert key == told["id"] == context.id
    assert told["finding"]["value"] == "nan"
    assert told["finding"]["evidence"] == {"norms": [1.0, "inf"]}
    assert told["run"]["name"] == RUN.name
    assert "secret" not in json.dumps(told) + result.detail


@pytest.mark.parametrize("code", [404, 302, 307])
def test_a_refusal_of_a_server_is_not_retried(context: ActionContext, code: int) -> None:
    with web_server([code]) as server:
        result = NotifyAction(NotifySettings(webhook=server.url)).take(context)
        assert (result.word, server.asked, server.taken) == ("refused", 1, [])
    assert str(code) in result.detail


@pytest.mark.thorough
def test_an_unavailable_server_is_given_up(context: ActionContext) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    settings = NotifySettings(webhook=f"http://127.0.0.1:{port}/", patience=0.6)
    result = NotifyAction(settings).take(context)
    assert result.word == "failed"
    assert "refused (tried 3 times)" in result.detail
    context.giving_up.set()
    began = time.monotonic()
    NotifyAction(NotifySettings(webhook=settings.webhook)).take(context)
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"webhook": "http://example.org/x"}, "must be https, unless insecure"),
        ({"webhook": "ftp://127.0.0.1/x"}, "must start with https://"),
        ({"webhook": "file:///etc/passwd"}, "must start with https://"),
        ({"webhook": "https://me:word@example.org/"}, "must not contain a user or password"),
        ({"webhook_variable": "SURELY_UNSET"}, "environment variable 'SURELY_UNSET' is not set"),
        ({}, "either webhook or webhook_variable"),
    ],
)
def test_an_unsafe_webhook_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        NotifySettings(**settings)
    assert "word" not in str(caught.value).replace("password", "")


def test_http_to_other_machines_must_be_allowed() -> None:
    NotifySettings(webhook="http://example.org/x", insecure=True)
    NotifySettings(webhook="http://[::1]:80/x")
    with pytest.raises(ValueError, match="must be https"):
        NotifySettings(webhook="http://localhost.example.org/x")


@pytest.mark.parametrize("port", [0, -1, 70_000, True])
def test_a_port_that_does_not_exist_is_refused(port: int) -> None:
    mail = {"host": "h", "to": ["me@example.org"], "sender": "me@example.org", "port": port}
    with pytest.raises(ConfigError, match=r"actions\.email\.port: must"):
        ActionPlan.from_tables({"email": mail}, {})


def test_a_mail_is_retried_if_the_server_asks_for_it(context: ActionContext) -> None:
    with mail_server(["451 later"]) as server:
        settings = EmailSettings(
            *("127.0.0.1", ["a@example.org", "b@example.org"], "me@example.org", server.port),
            starttls=False,
        )
        result = EmailAction(settings).take(context)
        assert result.word == "done", result
        (lines,) = server.mails
    mail = message_from_string("\r\n".join(lines), policy=policy.default)
    assert mail["Subject"] == "run of lines: nonfinite (stop) at step 7: the loss is NaN at once"
    assert mail["To"] == "a@example.org, b@example.org"
    body, attached = mail.iter_parts()
    assert "divide by 10" in body.get_content()
    assert json.loads(attached.get_content())["id"] == context.id


def test_a_refused_mail_is_not_retried(context: ActionContext) -> None:
    with mail_server(["550 never"]) as server:
        settings = EmailSettings(
            "127.0.0.1", ["a@example.org"], "me@example.org", server.port, starttls=False
        )
        result = EmailAction(settings).take(context)
        assert (result.word, server.mails) == ("refused", [])
    # Nothing is sent to a server that does not support the requested encryption.
    with mail_server([]) as server:
        settings = EmailSettings("127.0.0.1", ["a@example.org"], "me@example.org", server.port)
        assert EmailAction(settings).take(context).word == "refused"
        assert server.mails == []


def test_mail_needs_encryption_and_a_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(ValueError, match="starttls: must be true"):
        EmailSettings("mail.example.org", ["a@b.c"], "a@b.c", starttls=False)
    with pytest.raises(ValueError, match="environment variable 'MAIL_WORD' is not set"):
        EmailSettings("h", ["a@b.c"], "a@b.c", user="me", password_variable="MAIL_WORD")
    monkeypatch.setenv("MAIL_WORD", "hidden")
    settings = EmailSettings("h", ["a@b.c"], "a@b.c", user="me", password_variable="MAIL_WORD")
    assert settings.password() == "hidden"
    assert "hidden" not in repr(settings)
    with pytest.raises(ValueError, match="one line each"):
        EmailSettings("h", ["a@b.c\nBcc: x@y.z"], "a@b.c")


def test_a_program_reads_the_finding(context: ActionContext, tmp_path: Path) -> None:
    script = tmp_path / "on_finding.py"
    script.write_text(
        "import json, sys\n"
        "told = json.load(sys.stdin)\n"
        "open('told', 'w').write(told['finding']['rule'] + sys.argv[1])\n"
        "sys.exit(int(sys.argv[2]))\n"
    )
    argv = [sys.executable, script.name, "$HOME; touch never", "0"]
    result = CommandAction(CommandSettings(argv, cwd=str(tmp_path))).take(context)
    assert result == ("done", f"{sys.executable}: exit code 0")
    # Without a shell.
    assert (tmp_path / "told").read_text() == "nonfinite$HOME; touch never"
    assert not (tmp_path / "never").exists()
    result = CommandAction(CommandSettings([*argv[:3], "3"], cwd=str(tmp_path))).take(context)
    assert result == ("refused", f"{sys.executable}: exit code 3")
    assert CommandAction(CommandSettings(["/no/such"])).take(context).word == "refused"


@pytest.mark.thorough
def test_a_program_that_hangs_is_killed_with_all_that_it_started(
    context: ActionContext, tmp_path: Path
) -> None:
    (tmp_path / "hang.sh").write_text("sleep 600 & echo $! > pid; wait\n")
    settings = CommandSettings(["/bin/sh", "hang.sh"], cwd=str(tmp_path), timeout=2.0)
    result = CommandAction(settings).take(context)
    assert result == ("refused", "/bin/sh: killed after 2 s")
    state = Path("/proc", (tmp_path / "pid").read_text().strip(), "stat")
    deadline = time.monotonic() + 30
    # Gone, or a zombie.
    while state.exists() and state.read_text().split()[2] != "Z":
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_an_action_is_the_same_only_for_the_same_finding() -> None:
    assert action_id("r", FINDING, "notify") == action_id("r", FINDING, "notify")
    others = {action_id("r", FINDING, "email"), action_id("s", FINDING, "notify")}
    assert action_id("r", FINDING, "notify") not in others


def test_a_template_has_values_that_are_not_interpreted(tmp_path: Path) -> None:
    run = RunRecord(id="a" * 32, name="$rule ${x} {0}", created=1.0, parameters={"lr": 0.1})
    template = "$run/$parameters: $rule $severity $step $since $tensor $kind $findings $$: $seen"
    told = document(run, "runs/x", RootCause(FINDING, ()), "1", template=template)
    assert told["text"] == (
        "$rule ${x} {0}/lr=0.1: nonfinite stop 7 6 losses/x problem 1 $: the loss is NaN\nat once"
    )
    plain = document(run, "runs/x", RootCause(FINDING, ()), "1")
    again = document(run, "runs/x", RootCause(FINDING, ()), "1", template="! $text")
    assert again["text"] == f"! {plain['text']}"


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("$runn", r"actions\.template: no such placeholder \$runn; did you mean run"),
        ("$nothing_like_it", "known: run, location"),
        ("5 $ each", r"write \$\$"),
        ("${run.__class__}", r"write \$\$"),
        (5, "must be a text"),
    ],
)
def test_a_wrong_template_is_one_error(template: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ActionPlan.from_tables({"template": template}, {})


@pytest.mark.parametrize(
    "settings",
    [
        {"block": "team"},
        {"block": "slack-webhook/../x"},
        {"block": "slack-webhook/team", "webhook": "https://example.org/x"},
        {"block": "slack-webhook/team", "format": "slack"},
    ],
)
def test_wrong_settings_of_a_block_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="notify"):
        ActionPlan.from_tables({"notify": settings}, {})
