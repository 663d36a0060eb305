"""The capture configuration in effect, from the user, the rules and live requests."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from vinedresser.capture.adapters.adapter import Adapter, InputTaker, LossReader, LossTaker
from vinedresser.capture.adapters.training_setup import TrainingSetup, described_function
from vinedresser.capture.config.capture_config import CaptureConfig
from vinedresser.capture.recording.session import Session
from vinedresser.capture.run.environment import versions
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


class CaptureControl:
    """Maintains the capture configuration of one rank and the run's record.

    Args:
        own: collections of the user.
        needs: collections of the rules, which requests cannot change.
        world_size: number of ranks.

    Attributes:
        adapters: adapters of the watched models.
        losses: record entries of the losses that no adapter knows, by name.
        loss_taker: the adapter that records the values of loss functions, or None.
        input_taker: the same adapter if it also records what they compared, or None.
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
        self.loss_taker: LossTaker | None = None
        self.input_taker: InputTaker | None = None
        self._run = run
        self._session = session
        self._own = own
        self._needs = needs
        self._rank = rank
        self.world_size = world_size
        self._next_request = 0
        # Names of losses of the script's own functions, of which it is not known what they apply.
        self._unknown: set[str] = set()
        # The number of the request that takes effect with the next step, and its config.
        self._pending: tuple[int, CaptureConfig] | None = None

    def names(self) -> list[str]:
        """Return the names of all tensors known to be available for capture."""
        return [name for adapter in self.adapters for name in adapter.names()]

    def introduce(self, adapter: Adapter) -> None:
        """Add a watched model, or update one that has changed."""
        if adapter not in self.adapters:
            self.adapters.append(adapter)
            # Here, since checking for a protocol takes longer than recording a loss.
            taker: object = adapter
            if self.loss_taker is None and isinstance(taker, LossTaker):
                self.loss_taker = taker
                self.input_taker = taker if isinstance(taker, InputTaker) else None
        self._session.configure(self._in_force(self._own))
        for collection, module in self._session.recorder.config.unresolved():
            kind = type(module).__qualname__
            self._session.shield.report(
                f"collection {collection}: a {kind} in its modules is not part of a watched model"
            )
        self.describe()

    def know_loss(self, name: str, described: dict[str, Any]) -> None:
        """Add a loss that was seen for the first time.

        Args:
            described: entry of the record; see `training_setup.typed`.
        """
        self.losses[name] = described
        self._session.newly_set_up = True

    def release(self) -> None:
        """Release the watched models."""
        self.adapters.clear()
        self.loss_taker = self.input_taker = None

    def take_loss(
        self,
        name: str,
        function: Callable[..., Any],
        value: Any,
        arguments: tuple[Any, ...],
        given: dict[str, Any],
    ) -> None:
        """Record a value of a loss function; see `Hook.loss`."""
        taker = self.loss_taker
        if taker is None:
            return
        if name not in self.losses:
            self.know_loss(name, described_function(function, given))
            self._unknown |= {name} if self.losses[name].get("custom") else set()
        everything = (*arguments, *given.values())
        reader: object = taker
        if name in self._unknown and isinstance(reader, LossReader):
            # Before, so that a failure is the last one.
            self._unknown.discard(name)
            found = reader.custom_function(value, everything)
            if found is None:
                self._unknown.add(name)
            elif found:
                self.know_loss(name, self.losses[name] | found)
        taker.record_loss(name, value, everything)

    @property
    def framework(self) -> str:
        """Framework of the training; "" while nothing is watched."""
        return self.adapters[0].framework if self.adapters else ""

    def describe(self) -> None:
        """Complete the run's record, on rank 0 only."""
        if self._rank:
            return
        adapters, config = self.adapters, self._session.recorder.lasting
        found = {name: text for adapter in adapters for name, text in adapter.versions.items()}
        setup = TrainingSetup.joined(
            [*(adapter.setup() for adapter in adapters), TrainingSetup(dict(self.losses))]
        )
        record = replace(
            self._run.record,
            framework=self.framework,
            versions=versions(**found),
            world_size=self.world_size,
            capture=config.to_json(),
            capture_digest=config.digest(),
            capture_budget=self._session.budget.share,
            modules={path: info.words() for path, info in self._found().items()},
            features=next((adapter.features() for adapter in adapters if adapter.features()), []),
            classes=next(
                (adapter.classes() for adapter in adapters if adapter.classes()),
                self._session.classes,
            ),
            boosted=self._session.boosted(),
            losses=setup.losses,
            optimizers=list(setup.optimizers.values()),
            # Also those unfrozen since: rules judge the steps before that, too.
            frozen=list(dict.fromkeys((*self._run.record.frozen, *setup.frozen))),
            unoptimized=setup.unoptimized,
            dropout=setup.dropout,
            unpaired=setup.unpaired,
            loaded=setup.loaded,
            fresh=setup.fresh,
            order=setup.order,
            linear=setup.linear,
            breaches=setup.breaches,
        )
        self._session.shield.guard("describing the run", self._run.update)(record)

    def expect(self, lines: Sequence[str]) -> None:
        """Add what the user expects to the run's record, on rank 0 only."""
        record = self._run.record
        if self._rank == 0:
            lines = list(dict.fromkeys((*record.expectations, *lines)))
            write = self._session.shield.guard("noting what is expected", self._run.update)
            write(replace(record, expectations=lines))

    def look(self) -> None:
        """Answer the request that has taken effect, read the next one, and check the adapters.

        Called about once a second on the writer's thread.

        Raises:
            StoreError: the storage failed.
        """
        for adapter in self.adapters:
            adapter.look()
        self._note_thinning()
        if self._pending is not None:
            number, config = self._pending
            if self._session.recorder.adopted is not config:
                return
            self._pending = None
            # First the record: whoever has read the answer finds the new collections in it.
            self.describe()
            self._answer(number, self._session.recorder.adopted_at, config=config)
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
            self._session.shield.report(f"capture request refused: {error}")
            self._answer(number, self._session.recorder.steps, str(error))
            return
        if request.steps is None:
            self._own = changed
        self._pending = (number, config)
        self._session.reconfigure(config, request.steps)

    def close(self) -> None:
        """Complete the run's record, and answer the pending request.

        Raises:
            StoreError: the storage failed.
        """
        self._note_thinning()
        if self._pending is not None:
            number, config = self._pending
            self._pending = None
            met = self._session.recorder.adopted is config
            refused = "" if met else "the training ended before its next step"
            self._answer(number, self._session.recorder.adopted_at, refused, config=config)

    def _note_thinning(self) -> None:
        """Note in the run's record how much less often was captured than rules ask for.

        Raises:
            StoreError: the storage failed.
        """
        thinning = self._session.budget.thinning
        if thinning is not None and not self._rank:
            self._run.update(replace(self._run.record, thinned=thinning._asdict()))

    def _in_force(self, own: CaptureConfig) -> CaptureConfig:
        """Return the complete config for the user's collections."""
        needs = self._needs if self.world_size > 1 else self._needs.of_one_process()
        config = own.merged(needs).with_defaults()
        return config.resolved(self._found(), self._path_of)

    def _found(self) -> dict[str, ModuleInfo]:
        found: dict[str, ModuleInfo] = {}
        for adapter in self.adapters:
            found |= adapter.modules()
        return found

    def _path_of(self, module: Any) -> str | None:
        paths: Iterable[str | None] = (adapter.path_of(module) for adapter in self.adapters)
        return next((path for path in paths if path is not None), None)

    def _answer(
        self, number: int, step: int, refused: str = "", *, config: CaptureConfig | None = None
    ) -> None:
        """Write the answer to a request, with the resulting config; None: the present one."""
        capture = (config or self._session.recorder.config).to_json()
        answer = CaptureChange(step=step, capture=capture, time=time.time(), refused=refused)
        write_record(self._run.storage, answer, key=capture_change_key(number, self._rank))
