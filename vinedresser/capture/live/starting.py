"""Starting the agent of a training."""

from __future__ import annotations

from typing import Any

from vinedresser.capture.live.agent import Agent, check_packages
from vinedresser.capture.live.observer import LiveObserver
from vinedresser.capture.live.settings import LiveSettings
from vinedresser.capture.recording.session import Session
from vinedresser.capture.requests.control import CaptureControl
from vinedresser.capture.run.opening import OpenedRun
from vinedresser.errors import AgentAway, MissingDependency

__all__ = ["live_settings", "start_agent"]


def live_settings(given: LiveSettings | bool | None, run: OpenedRun) -> LiveSettings:
    """Return the settings of a hook.

    Args:
        given: by the script; true: it may be asked; None: those of the launched run.

    Raises:
        MissingDependency: the script asks for an agent, and a package is missing.
        ConfigError: the settings of the launched run are invalid.
    """
    if isinstance(given, bool):
        given = LiveSettings(enabled=given)
        if given.enabled:
            check_packages()
    return given or LiveSettings.from_json(run.record.live)


def start_agent(
    settings: LiveSettings, run: OpenedRun, session: Session, control: CaptureControl, rank: int
) -> Agent | None:
    """Start the agent of a rank if it may be asked.

    If that is impossible, report it: the training continues.

    Args:
        settings: settings of the hook.
        control: the watched models.
    """
    if not settings.enabled:
        return None
    recorder = session.recorder

    def known() -> list[str]:
        # The first step is not measured.
        return [*control.names(), "step_seconds"]

    observer = LiveObserver(rank, session.shield, known=known, roots=_Roots(control))

    def describe() -> dict[str, Any]:
        return {"run": run.record.id, "rank": rank, "step": recorder.steps}

    try:
        check_packages()
        agent = Agent(run.location, rank, observer, describe, session.shield)
    except (AgentAway, MissingDependency, OSError) as error:
        session.shield.report(f"nobody can ask this training: {error}")
        return None
    recorder.observer = observer
    return agent


class _Roots:
    """The paths of the watched models; their modules are listed once."""

    def __init__(self, control: CaptureControl) -> None:
        self._control = control
        self._listed = 0
        self._paths: tuple[str, ...] = ()

    def __call__(self) -> tuple[str, ...]:
        adapters = self._control.adapters
        if len(adapters) != self._listed:
            self._listed = len(adapters)
            modules = [item for adapter in adapters for item in adapter.modules().items()]
            self._paths = tuple(path for path, info in modules if info.root)
        return self._paths
