"""What a run captures: asked for by user and rules, completed by what is seen, changed live."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from vinedresser.capture.adapters.adapter import Adapter, LossTaker, TabularAdapter, Watchful
from vinedresser.capture.adapters.training_setup import SetUp, TrainingSetup, described_function
from vinedresser.capture.config.capture_config import CaptureConfig
from vinedresser.capture.recording.session import Session
from vinedresser.capture.run.opening import OpenedRun
from vinedresser.errors import ConfigError, CorruptData
from vinedresser.store.collections.modules import ModuleInfo
from vinedresser.store.records import (
    CaptureChange,
    CaptureRequest,
    capture_change_key,
    capture_request_key,
    read_record,
    write_record,
)

__all__ = ["CaptureControl"]


class CaptureControl:
    """Keeps the capture configuration of one rank, and tells the run's record of it.

    Args:
        run: the run.
        session: captures.
        own: what the user asks for.
        needs: what the rules ask for; it stays, whatever else changes.
        rank: of this process.
        world_size: how many ranks there are.

    Attributes:
        adapters: of the watched models.
        losses: those that no adapter knows of, for the record, by name.
        world_size: how many ranks there are.
    """

    def __init__(
        self,
        run: OpenedRun,
        session: Session,
        own: CaptureConfig,
        needs: CaptureConfig,
        *,
        rank: int,
        world_size: int,
    ) -> None:
        self.adapters: list[Adapter] = []
        self.losses: dict[str, dict[str, Any]] = {}
        self._run = run
        self._session = session
        self._own = own
        self._needs = needs
        self._rank = rank
        self.world_size = world_size
        self._next_request = 0
        # A request that takes effect with the next step, and the config that it leads to.
        self._pending: tuple[int, CaptureConfig] | None = None

    def names(self) -> list[str]:
        """Return the names of all tensors that are known to be there."""
        return [name for adapter in self.adapters for name in adapter.names()]

    def introduce(self, adapter: Adapter) -> None:
        """Take in a model that is watched from now on, or again when it has changed."""
        if adapter not in self.adapters:
            self.adapters.append(adapter)
        self._session.configure(self._in_force(self._own))
        for collection, module in self._session.recorder.config.unresolved():
            kind = type(module).__qualname__
            self._session.shield.report(
                f"collection {collection}: a {kind} among its modules is no part of a watched model"
            )
        self.describe()

    def know_loss(self, name: str, described: dict[str, Any]) -> None:
        """Take in a loss that was seen for the first time.

        Args:
            name: of the loss.
            described: its type and settings, as `training_setup.typed` returns them.
        """
        self.losses[name] = described
        self._session.newly_set_up = True

    def loss_taker(self) -> LossTaker | None:
        """Return what takes the values of losses that are watched by themselves."""
        return next((one for one in self.adapters if isinstance(one, LossTaker)), None)

    def take_loss(
        self,
        name: str,
        function: Callable[..., Any],
        value: Any,
        arguments: tuple[Any, ...],
        given: dict[str, Any],
    ) -> None:
        """Take a value of a loss function; see `vinedresser.capture.hook.watched_loss`."""
        taker = self.loss_taker()
        if taker is None:
            return
        if name not in self.losses:
            self.know_loss(name, described_function(function, given))
        taker.record_loss(name, value, (*arguments, *given.values()))

    def describe(self) -> None:
        """Complete the run's record; only rank 0 does."""
        if self._rank:
            return
        versions = {name: text for one in self.adapters for name, text in one.versions.items()}
        self._session.shield.guard("describing the run", self._run.describe)(
            self.adapters[0].framework if self.adapters else "",
            versions,
            self._session.recorder.lasting,
            self.world_size,
            self._modules(),
            setup=self._setup(),
            **self._tabular(),
        )

    def look(self) -> None:
        """Answer the request that has taken effect, and look for the next one; let adapters look.

        Called now and then on the writer's thread.

        Raises:
            StoreError: the storage refused.
        """
        for adapter in self.adapters:
            if isinstance(adapter, Watchful):
                adapter.look()
        if self._pending is not None:
            number, config = self._pending
            if self._session.recorder.adopted is not config:
                return
            self._pending = None
            self._answer(number, self._session.recorder.adopted_at, config=config)
            self.describe()
        storage, number = self._run.storage, self._next_request
        try:
            request = read_record(storage, CaptureRequest, key=capture_request_key(number))
            if request is None:
                return
            self._next_request += 1
            changed = self._own.changed(CaptureConfig.from_json(request.collections))
            config = self._session.guarded(self._in_force(changed))
        except (ConfigError, CorruptData) as error:
            self._next_request = number + 1
            self._session.shield.report(f"a capture request is refused: {error}")
            self._answer(number, self._session.recorder.steps, str(error))
            return
        if request.steps is None:
            self._own = changed
        self._pending = (number, config)
        self._session.reconfigure(config, request.steps)

    def close(self) -> None:
        """Answer what is still to be answered.

        Raises:
            StoreError: the storage refused.
        """
        if self._pending is not None:
            number, config = self._pending
            self._pending = None
            met = self._session.recorder.adopted is config
            refused = "" if met else "the training ended before its next step"
            self._answer(number, self._session.recorder.adopted_at, refused, config=config)

    def _in_force(self, own: CaptureConfig) -> CaptureConfig:
        """Return what is captured where the user asks for this."""
        config = own.merged(self._needs).with_defaults()
        return config.resolved(self._found(), self._path_of)

    def _found(self) -> dict[str, ModuleInfo]:
        found: dict[str, ModuleInfo] = {}
        for adapter in self.adapters:
            found |= adapter.modules()
        return found

    def _modules(self) -> dict[str, list[str]]:
        return {path: info.words() for path, info in self._found().items()}

    def _tabular(self) -> dict[str, list[str]]:
        """Return the features and the classes of a model that has names for them."""
        named = [one for one in self.adapters if isinstance(one, TabularAdapter)]
        features = next((one.features() for one in named if one.features()), [])
        classes = next((one.classes() for one in named if one.classes()), [])
        return {"features": features, "classes": classes}

    def _setup(self) -> TrainingSetup:
        """Return how the training is set up, as far as it is known by now."""
        setups = [one.setup() for one in self.adapters if isinstance(one, SetUp)]
        return TrainingSetup.joined([*setups, TrainingSetup(dict(self.losses))])

    def _path_of(self, module: Any) -> str | None:
        paths: Iterable[str | None] = (adapter.path_of(module) for adapter in self.adapters)
        return next((path for path in paths if path is not None), None)

    def _answer(
        self, number: int, step: int, refused: str = "", *, config: CaptureConfig | None = None
    ) -> None:
        """Answer a request that led to a config; None: to no other than there was."""
        capture = (config or self._session.recorder.config).to_json()
        answer = CaptureChange(step=step, capture=capture, time=time.time(), refused=refused)
        write_record(self._run.storage, answer, key=capture_change_key(number, self._rank))
