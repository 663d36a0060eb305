"""Where the user may configure Prefect, and that a store may not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.command_line import vinedresser
from vinedresser.errors import ConfigError
from vinedresser.infra.services.prefect_settings import has_server, refuse_settings

URL = "http://127.0.0.1:9/api"
# Everywhere that Prefect looks, in the working directory or in its home.
CONFIGURED = {
    ".env": f"export PREFECT_API_URL={URL}\n",
    "prefect.toml": f'[api]\nurl = "{URL}"\n',
    "pyproject.toml": f'[tool.prefect.api]\nurl = "{URL}"\n',
    "home/profiles.toml": f'active = "mine"\n[profiles.mine]\nPREFECT_API_URL = "{URL}"\n',
}
OTHER = {
    ".env": "# PREFECT_API_URL=\nPREFECT_API_KEY=x\n",
    "prefect.toml": "api = 3\n",
    "pyproject.toml": "[tool.prefect\n",
    "home/profiles.toml": f'active = "mine"\n[profiles.other]\nPREFECT_API_URL = "{URL}"\n',
}


@pytest.mark.parametrize("name", CONFIGURED)
def test_a_server_of_the_user_is_found(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "home"))
    assert not has_server()
    (tmp_path / "home").mkdir()
    (tmp_path / name).write_text(OTHER[name], encoding="utf-8")
    assert not has_server()
    (tmp_path / name).write_text(CONFIGURED[name], encoding="utf-8")
    assert has_server()


@pytest.mark.parametrize("name", ["logging.yml", "profiles.toml"])
def test_settings_in_the_former_home_are_refused_by_name(name: str, tmp_path: Path) -> None:
    home = tmp_path / ".vinedresser" / "prefect"
    home.mkdir(parents=True)
    (home / "prefect.db").touch()
    refuse_settings(tmp_path)
    (home / name).touch()
    with pytest.raises(ConfigError, match=f"{home / name}: Prefect is not configured by .* delete"):
        refuse_settings(tmp_path)


@pytest.mark.parametrize("name", [".env", "prefect.toml", "pyproject.toml"])
def test_settings_in_a_store_that_is_the_working_directory_are_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text(CONFIGURED[name], encoding="utf-8")
    refuse_settings(tmp_path / "runs")
    with pytest.raises(ConfigError, match=f"{tmp_path / name}: configures Prefect from within"):
        refuse_settings(tmp_path)


@pytest.mark.thorough
def test_a_program_that_a_store_names_does_not_run(tmp_path: Path) -> None:
    run = '[run]\nname = "one"\ncommand = ["python", "-c", "pass"]\nstore = "runs"\n'
    (tmp_path / "experiment.toml").write_text(run, encoding="utf-8")
    # JSON is YAML; with this in its home, Prefect calls os.system when it is imported.
    program = {"()": "os.system", "command": f"touch {tmp_path / 'ran'}"}
    planted = tmp_path / "runs" / ".vinedresser" / "prefect" / "logging.yml"
    planted.parent.mkdir(parents=True)
    planted.write_text(json.dumps({"version": 1, "filters": {"one": program}}), encoding="utf-8")
    done = vinedresser("train", "experiment.toml", cwd=tmp_path)
    assert done.returncode == 2
    assert f"{planted}: " in done.stderr
    assert vinedresser("reconcile", "runs", cwd=tmp_path).returncode == 0
    assert not (tmp_path / "ran").exists()
