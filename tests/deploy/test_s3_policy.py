"""The policy for a store on S3 suffices for all that we do, and allows nothing else."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.paths import ROOT
from tests.tasks.test_retention import ended_run
from vinedresser import open_run
from vinedresser.data.sources.s3 import find_object, list_objects
from vinedresser.infra.catalog.stores import ensure_store
from vinedresser.objects import StoreUrl, open_storage
from vinedresser.objects.s3_client import s3_client
from vinedresser.tasks.retention import named, remove
from vinedresser.testing.s3_server import BUCKET, TestServer, seaweed
from vinedresser.testing.storage import StorageConformance

pytestmark = pytest.mark.thorough

POLICY = (ROOT / "deploy/s3_policy.json").read_text(encoding="utf-8")
PREFIX = "team/runs"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestServer]:
    policy = POLICY.replace("BUCKET", BUCKET).replace("PREFIX", PREFIX)
    with seaweed(tmp_path_factory.mktemp("s3"), policy=policy) as server:
        yield server


@pytest.fixture
def store(server: TestServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return an empty prefix that the policy is about, for clients with the policy."""
    for name, value in server.member.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("VINEDRESSER_SPOOL", str(tmp_path / "spool"))
    return f"s3://{BUCKET}/{PREFIX}/{uuid.uuid4().hex}"


class TestMember(StorageConformance):
    # They take long, and ask for no other permissions than the rest.
    test_a_killed_put_leaves_nothing_or_a_whole_object = None  # type: ignore[assignment]
    test_an_exclusive_race_has_one_winner = None  # type: ignore[assignment]

    @pytest.fixture
    def location(self, store: str) -> str:
        return store


def test_a_run_is_written_read_and_removed(store: str) -> None:
    ensure_store(StoreUrl(store))
    run = StoreUrl(f"{store}/run-1")
    ended_run(run)
    assert open_run(run).steps("train").tolist() == [0]
    remove(named(run), "runs")
    assert open_storage(store).list("") == []


def test_a_large_object_goes_in_parts_and_data_is_found(store: str) -> None:
    storage = open_storage(store)
    storage.put("data/0.bin", (bytes(1 << 20) for _ in range(24)))
    [found] = list_objects(f"{store}/data/")
    assert found.size == find_object(found.uri).size == 24 << 20
    # What a killed upload leaves.
    where = {"Bucket": BUCKET, "Key": f"{PREFIX}/parts"}
    upload = s3_client().create_multipart_upload(**where)["UploadId"]
    s3_client().abort_multipart_upload(**where, UploadId=upload)


HERE = {"Bucket": BUCKET, "Key": f"{PREFIX}/a"}
OTHERS: dict[str, Callable[[Any], object]] = {
    "put beside": lambda s3: s3.put_object(Bucket=BUCKET, Key=f"{PREFIX}-2/a", Body=b""),
    "get beside": lambda s3: s3.get_object(Bucket=BUCKET, Key="team/a"),
    "delete beside": lambda s3: s3.delete_object(Bucket=BUCKET, Key="team/a"),
    "tags": lambda s3: s3.put_object_tagging(**HERE, Tagging={"TagSet": []}),
    "rights": lambda s3: s3.put_object_acl(**HERE, ACL="public-read"),
    "a bucket": lambda s3: s3.create_bucket(Bucket="another"),
    "no bucket": lambda s3: s3.delete_bucket(Bucket=BUCKET),
    "a policy": lambda s3: s3.put_bucket_policy(Bucket=BUCKET, Policy="{}"),
    "versions": lambda s3: s3.put_bucket_versioning(
        Bucket=BUCKET, VersioningConfiguration={"Status": "Enabled"}
    ),
    "expiry": lambda s3: s3.get_bucket_lifecycle_configuration(Bucket=BUCKET),
}


@pytest.mark.parametrize("what", OTHERS)
@pytest.mark.usefixtures("store")
def test_nothing_else_is_allowed(what: str) -> None:
    s3_client().put_object(**HERE, Body=b"")
    with pytest.raises(ClientError, match="AccessDenied"):
        OTHERS[what](s3_client())
