"""Files in a store are opened in one way only: see `vinedresser.objects.files`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.project.source_modules import modules

# Calls that open, create or copy files by a path, and follow symbolic links on the way.
FUNCTIONS = {
    "open",
    *("os.open", "io.open", "os.truncate", "os.symlink", "os.mkfifo"),
    *("sqlite3.connect", "duckdb.connect", "mmap.mmap"),
    *("shutil.copy", "shutil.copy2", "shutil.copyfile", "shutil.copytree", "shutil.move"),
    *("numpy.load", "np.load", "np.save", "np.savez", "np.savetxt", "np.loadtxt", "np.memmap"),
    *("torch.load", "torch.save", "load_file", "library.save_file", "save_file", "safe_open"),
    *("h5py.File", "gzip.open", "zipfile.ZipFile", "tarfile.open", "logging.FileHandler"),
}
METHODS = {
    *("open", "read_text", "read_bytes", "write_text", "write_bytes", "touch"),
    *("symlink_to", "hardlink_to", "load_weights", "save_weights", "save_model", "load_model"),
}
# Objects whose method `open` opens no file.
NO_FILES = ("opener", "_opener", "webbrowser")

# Files that may, and why no file of a store is opened.
ELSEWHERE = {
    "capture/keras_/adapter.py": "a temporary file of `replacing`",
    "capture/live/agent.py": "/dev/null",
    "capture/run/connections.py": "/proc",
    "capture/sklearn_/estimator.py": "a temporary file of `replacing`",
    "capture/torch_/checkpoint.py": "a temporary file of `replacing`",
    "capture/torch_/worker_states.py": "memory without a file",
    "capture/xgboost_/callback.py": "a temporary file of `replacing`",
    "cli/application.py": "/dev/null",
    "cli/interrupts.py": "/dev/null",
    "cli/live/watching.py": "a temporary folder of its own",
    "cli/starters/service.py": "a program of the user's",
    "cli/starting.py": "files that the user asks for",
    "cli/views/pictures.py": "a file that the user names",
    "data/downloading.py": "the user's cache folder, which is private",
    "data/pipes.py": "a pipe that the user names, in no store",
    "data/sources/cached.py": "the user's cache folder, which is private",
    "data/sources/finding.py": "training data that the user names, in no store",
    "explain/charts/plot.py": "a file that the user names",
    "explain/charts/standalone.py": "files of this package",
    "infra/configuration.py": "a file that the user names",
    "infra/services/database_template.py": "the user's state folder",
    "watching/people.py": "a file that the user names",
    "infra/supervise/gpus.py": "locks in a private folder, and /proc",
    "infra/supervise/hosts/kubernetes_launcher.py": "a file that the user names",
    "infra/supervise/hosts/reachable.py": "/dev/null",
    "infra/services/prefect_settings.py": "settings of the user's",
    "infra/services/servers/certificates.py": "the user's state folder",
    "infra/services/servers/local_server.py": "/proc",
    "infra/services/servers/note.py": "the user's state folder",
    "infra/services/servers/prefect_process.py": "the user's state folder",
    "infra/services/servers/prefect_server.py": "the user's state folder",
    "infra/services/servers/private_prefect.py": "the user's state folder",
    "infra/services/servers/seaweed.py": "the user's state folder",
    "infra/services/servers/seaweed_sockets.py": "a temporary folder of its own",
    "infra/services/tracking/artifacts.py": "links in a temporary folder, to checked files",
    "infra/supervise/sagemaker.py": "the tree of a container, in no store",
    "infra/supervise/supervisor/limits.py": "/proc",
    "infra/supervise/supervisor/trainer.py": "/proc",
    "infra/supervise/supervisor/system_metrics.py": "/proc",
    "infra/services/tracking/client.py": "after `check_file`: SQLite opens its files itself",
    "infra/services/tracking/preparation.py": "under `_locked`: a new name, renamed when complete",
    "preflight/settings.py": "a temporary folder of its own",
    "preflight/launching.py": "a temporary folder of its own",
    "processes.py": "/proc",
    "pruning/rounds/loading.py": "a path of `opened_path`, or after `check_file`",
    "pruning/rounds/scanning.py": "a temporary folder of its own",
    "pruning/torch_/backend.py": "a path of `opened_path`, or a temporary file of `replacing`",
    "pruning/weights.py": "a path of `opened_path`, or a temporary file of `replacing`",
    "watching/site.py": "the user's certificate, in no store",
    "queries/live/place.py": "a folder for sockets, outside of all stores",
    "queries/stored/sql.py": "a database in memory",
    "replay/answers.py": "a temporary folder of its own",
    "rules/causes/reliability.py": "files of this package",
    "rules/judge_server.py": "/dev/null, and a descriptor of `open_file`",
    "snapshots/record.py": "/proc",
    "serving/wrappers/pyfunc.py": "a temporary folder of its own",
    "objects/files.py": "defines the one way",
    "objects/local.py": "a new file in a folder of `open_folder`",
    "tasks/lifecycle/container_job.py": "the tree of a container, in no store",
    "tasks/places/checkpoint_parts.py": "an archive in a file of `open_file`",
    "tasks/pruning/fetching.py": "into a temporary folder of its own",
    "tasks/pruning/round_queue.py": "links are copied as links",
    "tasks/pruning/scan.py": "a temporary folder of its own",
    "testing/launchers.py": "a temporary folder of a test",
    "testing/s3_server.py": "the folder of a server for tests",
    "tasks/transfer.py": "an archive that the user names, and files in it",
    "watching/application.py": "files of this package",
}


def opens(tree: ast.AST) -> Iterator[str]:
    """Yield the calls that open a file by its path."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        of, _, method = name.rpartition(".")
        if name == "open" and node.args and ast.unparse(node.args[0]).startswith("open_file("):
            continue
        if name in FUNCTIONS or (
            isinstance(node.func, ast.Attribute)
            and method in METHODS
            and of.rpartition(".")[2] not in NO_FILES
        ):
            yield f"{name}, line {node.lineno}"


def test_files_of_a_store_are_opened_in_one_way() -> None:
    found = {
        str(module.path).removeprefix("vinedresser/"): calls
        for module in modules("vinedresser").values()
        if (calls := list(opens(module.tree)))
    }
    new = {path: calls for path, calls in found.items() if path not in ELSEWHERE}
    assert new == {}, (
        "use open_file, opened_path or LocalStorage, or say why it is no file of a store"
    )
    assert sorted(ELSEWHERE.keys() - found.keys()) == []
