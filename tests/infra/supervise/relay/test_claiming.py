"""A relay that is killed while it claims a run does not stand in the way of the next one."""

from __future__ import annotations

from pathlib import Path

import pytest

from vinedresser.errors import SecondWriter
from vinedresser.infra.supervise.relay.claiming import claim_rank
from vinedresser.objects import LocalStorage
from vinedresser.store.records import new_run, write_record


def test_a_rank_is_claimed_again_by_its_own_spool_only(tmp_path: Path) -> None:
    store, ours, others = (LocalStorage(tmp_path / name) for name in ("store", "ours", "others"))
    write_record(store, new_run("run"))
    claim_rank(ours, store, 1)
    # As if it had been killed after the store accepted the claim.
    (tmp_path / "ours" / ".relay" / "claimed").unlink()
    claim_rank(ours, store, 1)
    with pytest.raises(SecondWriter, match="rank 1 already has a writer"):
        claim_rank(others, store, 1)
