"""`vinedresser watch` for several people: their tokens and rights, TLS, and who is refused."""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import ipaddress
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.waiting import until
from tests.watching.browser import CHROMIUM, opened
from vinedresser.errors import ConfigError
from vinedresser.store.reading.reader import open_run
from vinedresser.testing.runs import make_run, step_record
from vinedresser.watching.people import People, read_people
from vinedresser.watching.site import Certificate, read_certificate

READER, STEERER = "reads-" + "r" * 40, "steers-" + "s" * 40
TRAINING = """
import time
from vinedresser.capture import Hook

knobs = {"rate": 1.0}
with Hook() as hook:
    hook.tunable("rate", get=lambda: knobs["rate"], set=lambda value: knobs.update(rate=value))
    while True:
        hook.step(loss=1.0)
        time.sleep(0.005)
"""


def tokens_in(folder: Path) -> Path:
    """Write a file of tokens of a reader and of somebody who may control."""
    path = folder / "tokens.toml"
    people = (("bob", "read", READER), ("ada", "control", STEERER))
    lines = [
        f'[{name}]\nrights = "{rights}"\nsha256 = "{hashlib.sha256(token.encode()).hexdigest()}"\n'
        for name, rights, token in people
    ]
    path.write_text("".join(lines), encoding="utf-8")
    path.chmod(0o600)
    return path


def certificate_in(folder: Path, *, days: float = 1, names: tuple[str, ...] = ()) -> Certificate:
    """Write a certificate that signs itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a test")])
    now = dt.datetime.now(dt.UTC)
    sans = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    sans += [x509.DNSName(one) for one in names]
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=10))
        .not_valid_after(now + dt.timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName(sans), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    files = Certificate(folder / "certificate.pem", folder / "key.pem", ())
    files.chain.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    files.key.write_bytes(private)
    files.key.chmod(0o600)
    return files


class Watching:
    """A server of several people.

    Args:
        address: its printed address.
        log: file of what it logs.
        client: a client that trusts its certificate.
    """

    def __init__(self, address: str, log: Path, client: httpx.Client) -> None:
        self.address, self._log, self._client = address, log, client

    def ask(
        self, method: str, path: str, token: str = "", name: str | None = None, **headers: str
    ) -> httpx.Response:
        """Send a request, with a bearer token or with the token as the password of a name."""
        sent = {key.replace("_", "-"): value for key, value in headers.items()}
        if token:
            pair = base64.b64encode(f"{name}:{token}".encode()).decode()
            sent["Authorization"] = f"Bearer {token}" if name is None else f"Basic {pair}"
        return self._client.request(method, path, headers=sent)

    @property
    def log(self) -> str:
        return self._log.read_text(encoding="utf-8")


@contextmanager
def watching(folder: Path, store: Path, tls: Certificate | None = None) -> Iterator[Watching]:
    """Serve a store to the people of `tokens_in`."""
    command = [sys.executable, "-m", "vinedresser", "watch", str(store), "--no-browser"]
    command += ["--tokens", str(tokens_in(folder))]
    if tls is not None:
        command += ["--certificate", str(tls.chain), "--private-key", str(tls.key)]
    log = folder / "watch.log"
    with log.open("w", encoding="utf-8") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        address = re.search(r"https?://\S+", line)
        assert address is not None, (line, log.read_text())
        trust = ssl.create_default_context(cafile=str(tls.chain)) if tls else True
        with httpx.Client(base_url=address[0], verify=trust, timeout=60) as client:
            yield Watching(address[0], log, client)
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watching]:
    folder = tmp_path_factory.mktemp("people")
    make_run(folder / "runs" / "good", [step_record(0, scalars={"losses/loss": 1.0})], name="good")
    with watching(folder, folder / "runs") as server:
        yield server


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("token", "name"),
    [(READER, None), (STEERER, None), (READER, "bob"), (STEERER, "ada")],
)
def test_a_token_opens_the_pages(served: Watching, token: str, name: str | None) -> None:
    assert served.ask("GET", "/run/good", token, name).status_code == 200
    assert served.ask("GET", "/runs", token, name).status_code == 200
    until(lambda: served.ask("GET", "/metrics", token, name).status_code == 200, "the metrics")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("token", "name"),
    [
        ("", None),
        (READER + "x", None),
        (READER[:-1], None),
        (READER, "ada"),
        (STEERER, "bob"),
        (STEERER, "ADA"),
        (STEERER, ""),
        ("x", "ada"),
        ("ü" * 40, "ada"),
        (hashlib.sha256(STEERER.encode()).hexdigest(), "ada"),
    ],
)
def test_nothing_is_served_without_a_right_token(
    served: Watching, token: str, name: str | None
) -> None:
    for path in ("/", "/runs", "/run/good", "/metrics", "/assets/store.js", "/nowhere"):
        answer = served.ask("GET", path, *((token, name) if token.isascii() else ("", None)))
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Basic ")
        assert "good" not in answer.text
    assert served.ask("POST", "/run/good/control?kind=stop", "", None).status_code == 401


@pytest.mark.thorough
def test_the_printed_address_and_the_log_have_no_token(served: Watching) -> None:
    served.ask("GET", "/runs", "wrong-" + "w" * 40, "eve\n2026 ada stop good")
    served.ask("GET", "/runs", "wrong-" + "w" * 40, "ada")
    # Name and token the wrong way round.
    served.ask("GET", "/runs", "ada", STEERER)
    served.ask("GET", f"/runs?key={STEERER}")
    served.ask("POST", f"/run/none/control?kind=stop&token={READER}", STEERER)
    assert "?" not in served.address
    assert "wrong token of a stranger" in served.log
    assert "wrong token of ada" in served.log
    assert "2026 ada" not in served.log
    assert not {READER, STEERER, "w" * 40} & set(re.findall(r"[\w-]{30,}", served.log))
    assert "Traceback" not in served.log


@pytest.mark.thorough
@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
    ],
)
def test_other_sites_get_nothing_with_the_token_of_a_browser(
    served: Watching, headers: dict[str, str]
) -> None:
    for method, path in (("GET", "/runs"), ("POST", "/run/good/control?kind=stop")):
        answer = served.ask(method, path, STEERER, "ada", **headers)
        assert (answer.status_code, "good" in answer.text) == (403, False)


@pytest.mark.thorough
def test_a_change_needs_control_and_a_page_of_this_server(served: Watching) -> None:
    own, change = served.address.rstrip("/"), "/run/good/control?kind=stop"
    for name in (None, "bob"):
        answer = served.ask("POST", change, READER, name, origin=own)
        assert answer.status_code == 403
        assert "bob may read, and not control trainings" in answer.text
    assert "bob may not control trainings" in served.log
    # A form of another page comes without an origin only from an old browser.
    assert served.ask("POST", change, STEERER, "ada").status_code == 403
    for method in ("PUT", "DELETE", "OPTIONS", "TRACE"):
        assert served.ask(method, change, STEERER).status_code == 405
    paths = (
        "/",
        "/runs",
        "/metrics",
        "/health",
        "/run/good",
        "/run/good/view",
        "/run/good/control/",
    )
    for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND"):
        assert {served.ask(method, path, STEERER).status_code for path in paths} == {405}
    for method in ("GET", "HEAD"):
        assert served.ask(method, change, STEERER).status_code == 405
    for name in ("%2e%2e", "good%2f..%2fgood", "..%2f..%2fetc", "good%0a", "good;x", "good%00"):
        for token in (READER, STEERER):
            path = f"/run/{name}/control?kind=stop"
            assert served.ask("POST", path, token).status_code in (403, 404, 405)
    assert served.ask("POST", "/run/none/control?kind=stop", STEERER).status_code == 404
    over = served.ask("POST", change, STEERER)
    assert over.status_code == 400
    assert "not running" in over.text
    unknown = served.ask("POST", "/run/good/control?kind=stopp", STEERER)
    assert "did you mean stop" in unknown.text
    page = served.ask("GET", "/run/good", READER).text
    assert 'id="control"' not in page


@pytest.mark.thorough
def test_smuggled_and_doubled_headers_are_refused(served: Watching) -> None:
    url = httpx.URL(served.address)
    assert url.port is not None
    host = f"Host: {url.host}:{url.port}\r\n"
    bearer = f"Authorization: Bearer {STEERER}\r\n"
    change = "POST /run/good/control?kind=stop HTTP/1.1\r\n"
    heads = {
        f"{change}{host}{bearer}Authorization: Bearer {READER}\r\n": "401",
        f"{change}{host}Host: evil.example\r\n{bearer}": "400",
        f"{change}{bearer}": "400",
        f"{change}{host}{bearer}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n": "400",
        f"{change}{host}{bearer}Content-Length: 5\r\nContent-Length: 6\r\n": "400",
        f"{change}{host}X-Forwarded-For: 127.0.0.1\r\nX-Forwarded-User: ada\r\n": "401",
        f"GET /runs HTTP/1.1\r\n{host}Upgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n": "401",
    }
    for head, status in heads.items():
        with socket.create_connection((url.host, url.port), timeout=60) as connection:
            connection.sendall(f"{head}\r\n".encode())
            assert connection.recv(4096).split()[1].decode() == status, head


@pytest.mark.thorough
def test_who_may_control_steers_and_stops_and_the_run_says_who(tmp_path: Path) -> None:
    store, script = tmp_path / "runs", tmp_path / "train.py"
    script.write_text(TRAINING, encoding="utf-8")
    command = [sys.executable, "-m", "vinedresser", "run", "--name", "steered"]
    training = subprocess.Popen(
        [*command, str(script)], cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        until((store / "steered" / "heartbeat" / "0.json").exists, "the training")
        with watching(tmp_path, store) as server:
            change = "/run/steered/control"
            set_rate = f"{change}?kind=adjust&parameter=rate&value=0.25"
            assert server.ask("POST", set_rate, READER).status_code == 403
            told = server.ask("POST", set_rate, STEERER)
            assert "rate changed from 1 to 0.25" in told.text
            other = server.ask("POST", f"{change}?kind=adjust&parameter=lr&value=1", STEERER)
            assert (other.status_code, "refused" in other.text) == (400, True)
            nan = server.ask("POST", f"{change}?kind=adjust&parameter=rate&value=nan", STEERER)
            assert nan.status_code == 400
            page = server.ask("GET", "/run/steered", STEERER).text
            assert 'id="control"' in page
            own = server.address.rstrip("/")
            done = server.ask("POST", f"{change}?kind=stop", STEERER, "ada", origin=own)
            assert done.status_code == 200
            training.wait(60)
            assert "ada: stop steered: stop requested" in server.log
    finally:
        training.send_signal(signal.SIGINT)
        training.wait(60)
    run = open_run(store / "steered")
    assert [(one.kind, one.new) for one in run.controls()] == [("adjust", [0.25])]
    assert "ada" in run.controls()[0].reason
    assert run.status.state == "stopped"
    assert "ada" in run.status.words + (store / "steered" / "stop.json").read_text()


@pytest.mark.thorough
def test_pages_are_encrypted_by_the_certificate(tmp_path: Path) -> None:
    make_run(tmp_path / "runs" / "good", [step_record(0)], name="good")
    tls = certificate_in(tmp_path)
    with watching(tmp_path, tmp_path / "runs", tls) as server:
        assert server.address.startswith("https://localhost:")
        assert server.ask("GET", "/runs", READER).status_code == 200
        plain = server.address.replace("https", "http")
        with pytest.raises(httpx.HTTPError):
            httpx.get(plain)
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            httpx.get(server.address)
        # A page of the same host without TLS is another origin.
        answer = server.ask("GET", "/runs", READER, origin=plain.rstrip("/"))
        assert answer.status_code == 403


@pytest.mark.thorough
@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium or Chrome on the PATH")
def test_a_browser_controls_with_the_printed_key(tmp_path: Path) -> None:
    store, script = tmp_path / "runs", tmp_path / "train.py"
    script.write_text(TRAINING, encoding="utf-8")
    command = [sys.executable, "-m", "vinedresser", "run", "--name", "steered", str(script)]
    quiet = subprocess.DEVNULL
    training = subprocess.Popen(command, cwd=tmp_path, stdout=quiet, stderr=quiet)
    watch = [sys.executable, "-m", "vinedresser", "watch", str(store / "steered"), "--no-browser"]
    watch.append("--control")
    try:
        until((store / "steered" / "heartbeat" / "0.json").exists, "the training")
        with subprocess.Popen(watch, stdout=subprocess.PIPE, stderr=quiet, text=True) as server:
            try:
                assert server.stdout is not None
                address = re.search(r"http://\S+", server.stdout.readline())
                assert address is not None
                with opened(tmp_path / "profile") as browser:
                    browser.open(address[0])
                    until(lambda: browser.value("!!document.getElementById('control')"), "the page")
                    browser.value("control('adjust', 'rate', '0.5')")
                    told = "document.getElementById('controlled').textContent"
                    until(lambda: "to 0.5" in browser.value(told), "the change")
                    # Its answer takes longer than that of the next one, which stays.
                    browser.value(
                        "control('adjust', 'none', '1').then(() => { window.late = true })"
                    )
                    browser.value("confirm = () => true")
                    browser.value("document.querySelector('[data-kind=stop]').click()")
                    assert training.wait(60) != 0
                    until(lambda: browser.value("window.late"), "the first answer")
                    until(lambda: "stop: stop requested" in browser.value(told), "the last answer")
                    disabled = "document.querySelector('[data-kind=stop]').disabled"
                    until(lambda: browser.value(disabled), "the end")
            finally:
                server.kill()
    finally:
        training.send_signal(signal.SIGINT)
        training.wait(60)


def test_a_file_of_tokens_is_closed_and_right(tmp_path: Path) -> None:
    path = tokens_in(tmp_path)
    assert [(one.name, one.rights) for one in read_people(path)] == [
        ("bob", "read"),
        ("ada", "control"),
    ]
    path.chmod(0o640)
    link = tmp_path / "link.toml"
    link.symlink_to(path)
    for one in (path, link):
        with pytest.raises(ConfigError, match="others can open it; close it: chmod 600"):
            read_people(one)
    path.chmod(0o600)
    assert read_people(link) == read_people(path)
    good = f'rights = "read"\nsha256 = "{"0" * 64}"\n'
    wrong = {
        "": "names nobody",
        f"[ada]\n{good}[bob]\n{good}": "ada and bob have the same token",
        '[ada]\nrights = "root"\nsha256 = "0"\n': "ada.rights",
        f'[ada]\nrights = "read"\nsha256 = "{STEERER}"\n': "64 hexadecimal digits",
        f'["a:b"]\n{good}': "a name has",
        f'ada = "{STEERER}"\n': "must be a table",
        f'[ada]\ntoken = "{STEERER}"\n': "ada.token: no such key",
    }
    for text, message in wrong.items():
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ConfigError, match=message) as caught:
            read_people(path)
        assert STEERER not in str(caught.value)
    with pytest.raises(ConfigError, match="No such file"):
        read_people(tmp_path / "none")
    os.mkfifo(tmp_path / "fifo", 0o600)
    for one in (tmp_path / "fifo", tmp_path):
        with pytest.raises(ConfigError, match="not a file"):
            read_people(one)


def test_the_file_of_tokens_counts_as_it_is_now(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "vinedresser.watching")
    path = tokens_in(tmp_path)
    people = People(path)

    def names() -> list[str]:
        return [one.name for one in people.now()]

    def written(text: str) -> None:
        # In place, as an editor does, and of the same size if it may be.
        path.write_text(text, encoding="utf-8")

    before = path.read_text()
    assert names() == ["bob", "ada"]
    written(before.replace("[bob]", "[eve]"))
    assert names() == ["eve", "ada"]
    written("[")
    assert names() == names() == []
    path.chmod(0o604)
    assert names() == names() == []
    path.unlink()
    assert names() == names() == []
    again = tmp_path / "again"
    again.write_text(before, encoding="utf-8")
    again.chmod(0o600)
    again.rename(path)
    assert names() == names() == ["bob", "ada"]
    said = [record.getMessage() for record in caplog.records]
    assert [one.partition(": ")[2] for one in said] == [
        "read again: eve (read), ada (control)",
        *(one.partition(": ")[2] for one in said[1:4]),
        "read again: bob (read), ada (control)",
    ]
    assert all("nobody is let in until it is right" in one for one in said[1:4])
    assert not any(token in "".join(said) for token in (READER, STEERER))


@pytest.mark.thorough
def test_a_token_that_is_withdrawn_opens_nothing_more(tmp_path: Path) -> None:
    make_run(tmp_path / "runs" / "good", [step_record(0, scalars={"losses/loss": 1.0})])
    with watching(tmp_path, tmp_path / "runs") as server:
        assert server.ask("GET", "/", READER).status_code == 200
        path = tmp_path / "tokens.toml"
        path.write_text("[ada]" + path.read_text().partition("[ada]")[2])
        assert server.ask("GET", "/", READER).status_code == 401
        assert server.ask("GET", "/", STEERER).status_code == 200
        path.write_text("[")
        assert server.ask("GET", "/", STEERER).status_code == 401
        assert server.ask("GET", "/", STEERER).status_code == 401
        tokens_in(tmp_path)
        assert server.ask("GET", "/", READER).status_code == 200
        assert server.log.count("nobody is let in until it is right") == 1


def test_a_wrong_certificate_is_refused(tmp_path: Path) -> None:
    good = certificate_in(tmp_path, names=("gpu1.example.org", "*.example.org"))
    names = read_certificate(good.chain, good.key).names
    assert names == ("localhost", "gpu1.example.org", "127.0.0.1")
    good.key.chmod(0o644)
    with pytest.raises(ConfigError, match="others can open it"):
        read_certificate(good.chain, good.key)
    good.key.chmod(0o600)
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(ConfigError, match="and its key"):
        read_certificate(certificate_in(other).chain, good.key)
    late = certificate_in(other, days=-1)
    with pytest.raises(ConfigError, match="expired"):
        read_certificate(late.chain, late.key)
    key = serialization.load_pem_private_key(good.key.read_bytes(), None)
    locked = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"password"),
    )
    good.key.write_bytes(locked)
    with pytest.raises(ConfigError, match="has a password"):
        read_certificate(good.chain, good.key)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--host", "0.0.0.0"], "other machines can connect to it"),
        (["--certificate", "c.pem"], "must be given together"),
        (["--control", "--tokens", "t.toml"], 'give rights = "control"'),
        (["--host", "192.0.2.1"], "--host 192.0.2.1"),
        (["--host", "no such host"], "--host no such host"),
    ],
)
def test_an_unsafe_server_does_not_start(tmp_path: Path, options: list[str], message: str) -> None:
    make_run(tmp_path / "runs" / "good", [step_record(0)], name="good")
    command = [sys.executable, "-m", "vinedresser", "watch", "runs", "--no-browser", *options]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, message in done.stderr) == (2, True), done.stderr
