"""The table [data]: what a script gets, what is recorded, and what is said of a wrong one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vinedresser.data import channel
from vinedresser.errors import ConfigError
from vinedresser.infra.supervise.supervisor.run_contract import RunContract
from vinedresser.objects import LocalStorage, open_storage
from vinedresser.store.records import LaunchRecord, RunRecord, read_record
from vinedresser.tasks.config.experiment import load_experiment
from vinedresser.tasks.config.sweep_file import load_sweep
from vinedresser.tasks.lifecycle.prepare import RunMaker, fetch_channels, prepare_mlflow

RUN = '[run]\nname = "one"\ncommand = ["python", "train.py"]\n'
DATA = '[data]\ncache = "20 GB"\ntrain = "images/"\ntest-2 = ["s3://bucket/a/", "b/*.tar"]\n'


def write(folder: Path, text: str) -> Path:
    (folder / "train.py").touch()
    path = folder / "experiment.toml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.thorough
def test_a_script_reads_its_channels_and_they_are_recorded(
    tmp_path: Path,
    mlflow_store: Callable[[Path], Path],
    mlflow_runs: Callable[[Path], dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = mlflow_store(tmp_path / "runs")
    path = write(tmp_path, f"{RUN}attach = false\n{DATA}")
    experiment = load_experiment(path)
    with pytest.raises(ConfigError, match=r"data.train: .*/images/: no such file or directory"):
        experiment.refuse_missing()
    (tmp_path / "images").mkdir()
    experiment.refuse_missing()
    place = RunMaker(
        experiment,
        fetch_channels(experiment),
        prepare_mlflow(experiment.store, experiment.tracking_uri, "e"),
        flow="",
    ).make(experiment.specs[0])
    storage = LocalStorage(place.directory)
    launch, run = read_record(storage, LaunchRecord), read_record(storage, RunRecord)
    assert launch is not None
    assert run is not None
    images, both = f"{tmp_path}/images/", ["s3://bucket/a/", f"{tmp_path}/b/*.tar"]
    assert run.data == {"train": [images], "test-2": both}
    assert {name for name in launch.environment if name.startswith("SM_")} == {"SM_CHANNEL_TRAIN"}
    assert launch.environment["VINEDRESSER_DATA_CACHE"] == "20 GB"
    for name, value in launch.environment.items():
        monkeypatch.setenv(name, value)
    assert channel("train") == [images]
    assert channel("test-2") == both
    with pytest.raises(ConfigError, match=r"no channel 'tran' in \[data\]; did you mean train\?"):
        channel("tran")
    params = mlflow_runs(store)["one"]["params"]
    assert params["data.train"] == images
    assert both[1] in params["data.test-2"]
    sweep = '[sweep]\nmetric = "accuracy"\ntrials = 3\n[space]\nlr = { log = [1e-3, 1.0] }\n'
    assert load_sweep(write(tmp_path, RUN + DATA + sweep)).experiment.channels == run.data


@pytest.mark.thorough
def test_a_channel_on_s3_is_a_folder_for_a_script_of_sagemaker_and_stays_its_address(
    s3: str,
    tmp_path: Path,
    mlflow_store: Callable[[Path], Path],
    mlflow_runs: Callable[[Path], dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    open_storage(f"{s3}/rows").put("a.csv", [b"1,2\n"])
    store = mlflow_store(tmp_path / "runs")
    text = f'{RUN}attach = false\ncontract = "sagemaker"\n[data]\nmy-rows = "{s3}/rows"\n'
    experiment = load_experiment(write(tmp_path, text))
    tracking = prepare_mlflow(experiment.store, experiment.tracking_uri, "e")
    maker = RunMaker(experiment, fetch_channels(experiment), tracking, flow="")
    storage = LocalStorage(maker.make(experiment.specs[0]).directory)
    launch, run = read_record(storage, LaunchRecord), read_record(storage, RunRecord)
    assert launch is not None
    assert run is not None
    folder = Path(RunContract(storage, run, launch).environment(0)["SM_CHANNEL_MY-ROWS"])
    assert [one.read_bytes() for one in folder.iterdir()] == [b"1,2\n"]
    assert launch.environment["SM_CHANNEL_MY-ROWS"] == str(folder)
    # The record has the address on S3, not that of the download.
    assert run.data == {"my-rows": [f"{s3}/rows"]}
    assert mlflow_runs(store)["one"]["params"]["data.my-rows"] == f"{s3}/rows"


def test_a_script_by_itself_has_the_channels_of_sagemaker(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="no channel 'train': the process was not started from"):
        channel("train")
    monkeypatch.setenv("SM_CHANNEL_TRAIN", "/opt/ml/input/data/train")
    assert channel("train") == ["/opt/ml/input/data/train"]
    monkeypatch.setenv("VINEDRESSER_CHANNELS", '{"train": "a"}')
    with pytest.raises(ConfigError, match="VINEDRESSER_CHANNELS: must be a JSON object of lists"):
        channel("train")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ('data = "a"\n' + RUN, "data: must be a table such as train ="),
        (RUN + "[data]\ntrain = []\n", r"data.train: must be a path or URL, or a list .* not \[\]"),
        (RUN + "[data]\ntrain = 3\n", "data.train: must be a path or URL, or a list"),
        (RUN + '[data]\ncach = "20 GB"\n', "data.cach: '20 GB' is a size, .*; did you mean cache?"),
        (
            RUN + '[data]\nroom = "20 GB"\n',
            "data.room: '20 GB' is a size, .* of the cache is cache",
        ),
        (RUN + "[data]\ncahce = 20\n", "data.cahce: must be a path .*; did you mean cache?"),
        (RUN + "[data]\ncache = 20\n", 'data.cache: must be a size such as "500 MB"'),
        (RUN + '[data]\n"a b" = "x"\n', "data.a b: the name of a channel has letters"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, data: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_experiment(write(tmp_path, data))
