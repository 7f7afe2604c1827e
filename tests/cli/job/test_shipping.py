"""A person's folder and packages reach the workers of a job on any cluster, and go with the job."""

from __future__ import annotations

import base64
import io
import json
import os
import random
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import yaml

from tests.cli.conftest import Run
from tests.cli.fake import FakeCluster
from tests.elastic.packages.wheels import wheel
from tidewater.elasticjob.names import JOBS
from tidewater.kube.cluster import Object
from tidewater.kube.errors import NotFound, error_of
from tidewater.kube.kinds import CONFIG_MAPS

SCRIPT = """\
import json, os, sys, alpha, net.model
print(json.dumps([__name__, os.path.basename(os.getcwd()), alpha.VERSION, net.model.NAME, sys.argv[1:]]))
"""
TIDEWATER = ("--launcher", "tidewater", "--rdzv-endpoint", "etcd:2379")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with a script, a module and what is ignored; next to it a lock and its wheel."""
    folder = tmp_path / "project"
    (folder / "net").mkdir(parents=True)
    (folder / "train.py").write_text(SCRIPT)
    (folder / "net" / "model.py").write_text("NAME = 'model'\n")
    (folder / ".gitignore").write_text("*.log\n")
    (folder / "run.log").write_text("")
    line = wheel(tmp_path / "wheels", "alpha")
    (tmp_path / "lock.txt").write_text(f"--no-index\n--find-links wheels\n{line}\n")
    return folder


def words(project: Path, *more: str, script: str = "train.py") -> tuple[str, ...]:
    lock = str(project.parent / "lock.txt")
    own = ("--code", str(project), "--script", script, "--requirements", lock)
    return ("job", "submit", "digits", "--image", "i", *own, *more)


def submitted(run: Run, cluster: FakeCluster, *line: str) -> tuple[Object, Object]:
    """Submit; return the worker's pod template and the ConfigMap."""
    result = run(*line)
    assert result.exit_code == 0, result.stderr
    job = cluster.get(JOBS, "digits")
    (config_map,) = cluster.list(CONFIG_MAPS).items
    pod: Object = job["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]
    return pod, config_map


def as_a_worker(pod: Object, config_map: Object, root: Path) -> list[subprocess.CompletedProcess[str]]:
    """Run the containers of a pod on this machine, with `root` in place of /tidewater."""
    place = root / "tidewater"
    for name in ("archive", "code", "packages"):
        (place / name).mkdir(parents=True, exist_ok=True)
    (place / "archive" / "code.tar").write_bytes(base64.b64decode(config_map["binaryData"]["code.tar"]))
    here: Object = json.loads(json.dumps(pod).replace("/tidewater/", f"{place}/").replace("python3", sys.executable))
    found = []
    for each in (*here["initContainers"], *here["containers"]):
        environ = {**os.environ, **{pair["name"]: pair["value"] for pair in each.get("env", ())}}
        line = [*each["command"], *each.get("args", ())]
        where = each.get("workingDir", str(root))
        found.append(subprocess.run(line, env=environ, cwd=where, capture_output=True, text=True, check=False))
    return found


@pytest.mark.parametrize("script", ["train.py", "-m train"])
@pytest.mark.parametrize("launcher", [("--launcher", "none"), TIDEWATER], ids=["python", "tidewater"])
def test_the_script_runs_in_its_folder_with_its_packages(
    run: Run, cluster: FakeCluster, project: Path, script: str, launcher: tuple[str, ...]
) -> None:
    pod, config_map = submitted(run, cluster, *words(project, *launcher, "--", "--lr", "1", script=script))
    *_, trained = as_a_worker(pod, config_map, project.parent / "pod")
    assert (trained.stdout, trained.stderr) == ('["__main__", "project", "1.0", "model", ["--lr", "1"]]\n', "")
    assert not (project.parent / "pod" / "tidewater" / "code" / "project" / "run.log").exists()


def test_with_the_runtime_go_the_packages_for_libraries(run: Run, cluster: FakeCluster, project: Path) -> None:
    _, config_map = submitted(run, cluster, *words(project, *TIDEWATER))
    with tarfile.open(fileobj=io.BytesIO(base64.b64decode(config_map["binaryData"]["code.tar"]))) as tar:
        assert "runtime/tidewater_transformers/trainer.py" in tar.getnames()


def test_the_second_worker_on_a_claim_installs_nothing(run: Run, cluster: FakeCluster, project: Path) -> None:
    pod, config_map = submitted(run, cluster, *words(project, "--claim", "shared", "--launcher", "none"))
    assert {"name": "tidewater-packages", "persistentVolumeClaim": {"claimName": "shared"}} in pod["volumes"]
    (trainer,) = pod["containers"]
    (mount,) = (each for each in trainer["volumeMounts"] if each["name"] == "tidewater-packages")
    assert mount["readOnly"]
    logs = [as_a_worker(pod, config_map, project.parent / "pod")[1].stdout for _ in range(2)]
    assert ["event=packages_writing" in log for log in logs] == [True, False]
    assert all("event=packages_ready" in log for log in logs)


def test_a_missing_module_is_a_sentence_and_a_code_that_is_not_retried(
    run: Run, cluster: FakeCluster, project: Path
) -> None:
    (project / "train.py").write_text("import json\nimport no_such_library\n")
    pod, config_map = submitted(run, cluster, *words(project, *TIDEWATER))
    *_, trained = as_a_worker(pod, config_map, project.parent / "pod")
    assert trained.returncode == 2
    (line,) = trained.stderr.splitlines()
    assert "project/train.py, line 2, imports no_such_library, and the worker has no such module" in line
    assert "to the lock of --requirements" in line


def test_torchrun_starts_in_the_folder(run: Run, cluster: FakeCluster, project: Path) -> None:
    pod, _ = submitted(run, cluster, *words(project, script="-m net.model"))
    (trainer,) = pod["containers"]
    assert (trainer["command"], trainer["args"]) == (["torchrun"], ["--nproc-per-node=1", "-m", "net.model"])
    assert trainer["workingDir"] == "/tidewater/code/project"
    assert {"name": "PYTHONPATH", "value": "/tidewater/code/packages"} in trainer["env"]


def test_an_own_pythonpath_comes_last(run: Run, cluster: FakeCluster, project: Path) -> None:
    pod, _ = submitted(run, cluster, *words(project, *TIDEWATER, "--env", "PYTHONPATH=/opt/lib"))
    found = {each["name"]: each["value"] for each in pod["containers"][0]["env"]}
    assert found["PYTHONPATH"] == "/tidewater/code/runtime:/tidewater/code/packages:/opt/lib"


def test_the_name_follows_the_content_and_the_owner_is_the_job(run: Run, cluster: FakeCluster, project: Path) -> None:
    _, first = submitted(run, cluster, *words(project))
    (owner,) = first["metadata"]["ownerReferences"]
    assert owner["uid"] == cluster.get(JOBS, "digits")["metadata"]["uid"]
    assert first["immutable"]
    assert _name(run, project) == first["metadata"]["name"]
    (project / "net" / "model.py").write_text("NAME = 'other'\n")
    assert _name(run, project) != first["metadata"]["name"]


def _name(run: Run, project: Path) -> str:
    """Return the name that the ConfigMap would have."""
    config_map, _job = yaml.safe_load_all(run(*words(project), "--dry-run").stdout)
    return str(config_map["metadata"]["name"])


def test_a_dry_run_prints_the_config_map_in_the_namespace_of_the_job(run: Run, project: Path) -> None:
    printed = list(yaml.safe_load_all(run(*words(project), "--dry-run", "-n", "lab").stdout))
    assert [each["metadata"]["namespace"] for each in printed] == ["lab", "lab"]


def test_the_config_map_of_a_deleted_job_of_this_name_goes_over_to_the_new_one(
    run: Run, cluster: FakeCluster, project: Path
) -> None:
    submitted(run, cluster, *words(project))
    cluster.remove(JOBS, "digits")
    _, config_map = submitted(run, cluster, *words(project))
    (owner,) = config_map["metadata"]["ownerReferences"]
    assert owner["uid"] == cluster.get(JOBS, "digits")["metadata"]["uid"]


def test_a_job_without_its_config_map_does_not_stay(run: Run, cluster: FakeCluster, project: Path) -> None:
    cluster.failures["create", "ConfigMap"] = error_of(403, "Forbidden", "configmaps is forbidden")
    result = run(*words(project))
    assert result.exit_code == 1
    assert "configmaps is forbidden" in result.stderr
    with pytest.raises(NotFound):
        cluster.get(JOBS, "digits")


def test_a_folder_that_no_config_map_holds_is_refused_with_its_largest_files(
    run: Run, cluster: FakeCluster, project: Path
) -> None:
    (project / "weights.bin").write_bytes(random.Random(1).randbytes(2 << 20))
    result = run(*words(project))
    assert result.exit_code == 2
    assert "KiB compressed, and a ConfigMap holds 900 KiB. The largest files: weights.bin (2.0 MiB), " in result.stderr
    assert cluster.sent == []


@pytest.mark.parametrize(
    ("line", "words"),
    [
        pytest.param(("--code", "nowhere", "--script", "t.py"), "--code nowhere is not a folder", id="no-folder"),
        pytest.param(("--code", "."), "--script is missing", id="no-script"),
        pytest.param(("--code", "docs", "--script", "t.py"), "the script t.py is not in --code (docs)", id="not-there"),
        pytest.param(("--claim", "c"), "--claim is for packages, and there is no --requirements", id="only-a-claim"),
        pytest.param(("--requirements", "x"), "--requirements x: is not a file that can be read", id="no-lock"),
    ],
)
def test_what_can_not_work_is_one_sentence(run: Run, cluster: FakeCluster, line: tuple[str, ...], words: str) -> None:
    result = run("job", "submit", "digits", "--image", "i", *line)
    assert result.exit_code == 2
    assert words in result.stderr.splitlines()[0]
    assert cluster.sent == []
