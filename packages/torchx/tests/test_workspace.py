"""What goes with a job, what stays, and where it goes: on real folders, with moto's S3 behind boto3."""

from __future__ import annotations

import io
import os
import socket
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import boto3
import fsspec
import pytest
from tidewater_torchx import workspace
from tidewater_torchx.errors import Refused
from tidewater_torchx.workspace import METADATA, WorkspaceMixin, mounted, pack, upload
from torchx.specs import AppDef, Role

from packages.torchx.tests.doubles import Images
from tests.aws import account
from tidewater.contract.code import Archive

BUCKET = "tidewater-code"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with a script, a program, a folder and a file that is not to go."""
    folder = tmp_path / "project"
    (folder / "data").mkdir(parents=True)
    (folder / "train.py").write_text("print('trains')\n")
    (folder / "data" / "labels.csv").write_text("1\n")
    (folder / "data" / "images.bin").write_bytes(bytes(1 << 20))
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / ".torchxignore").write_text("# too large\ndata/*.bin\n")
    return folder


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A bucket in moto's S3, which the environment leads to."""
    with account.served(account.moto()) as endpoint:
        account.use(monkeypatch, endpoint, AWS_REGION="us-east-1")
        boto3.client("s3").create_bucket(Bucket=BUCKET)
        yield BUCKET


def opened(archive: Archive) -> tarfile.TarFile:
    return tarfile.open(fileobj=io.BytesIO(archive.content))


def in_workspace(archive: Archive) -> list[str]:
    names = [name for name in opened(archive).getnames() if name.startswith("workspace/")]
    return [name.removeprefix("workspace/") for name in names]


def test_files_go_without_those_that_torchxignore_names(project: Path) -> None:
    assert in_workspace(pack(f"file://{project}")) == [".torchxignore", "data/labels.csv", "run.sh", "train.py"]


@pytest.mark.parametrize(
    ("patterns", "gone"),
    [
        pytest.param("data/*\n!data/labels.csv\n", {"data/images.bin"}, id="exception"),
        pytest.param("data/\n", {"data/images.bin", "data/labels.csv"}, id="slash-at-the-end"),
        pytest.param("/data\n", {"data/images.bin", "data/labels.csv"}, id="slash-at-the-beginning"),
        pytest.param("data/\n!data/labels.csv\n", {"data/images.bin"}, id="exception-in-a-folder"),
        pytest.param("**\n!**/*.csv\n!run.sh", {".torchxignore", "data/images.bin", "train.py"}, id="all-but-some"),
        pytest.param("data/labels.csv\n!data\ndata/*.bin", {"data/images.bin"}, id="the-last-one-counts"),
        pytest.param("**/*.bin\n#train.py\n", {"data/images.bin"}, id="any-depth"),
        pytest.param("*.bin\n", set(), id="a-star-is-of-one-folder"),
        pytest.param("./data/../run.sh\n", {"run.sh"}, id="dots"),
    ],
)
def test_patterns_are_those_of_a_dockerignore(project: Path, patterns: str, gone: set[str]) -> None:
    whole = {".torchxignore", "data/images.bin", "data/labels.csv", "run.sh", "train.py"}
    (project / ".torchxignore").write_text(patterns)
    assert set(in_workspace(pack(f"file://{project}"))) == whole - gone


def test_the_same_files_have_the_same_key_whenever_and_by_whom_they_were_written(project: Path, tmp_path: Path) -> None:
    other = tmp_path / "elsewhere"
    subprocess.run(["cp", "-r", project, other], check=True)
    for number, path in enumerate(sorted(other.rglob("*"), reverse=True)):
        os.utime(path, (number, number))
        path.chmod(path.stat().st_mode & ~0o077)
    assert pack(f"file://{other}").key == pack(f"file://{project}").key


@pytest.mark.parametrize("change", ["content", "name", "executable"])
def test_a_changed_file_changes_the_key(project: Path, change: str) -> None:
    before, script = pack(f"file://{project}").key, project / "train.py"
    if change == "content":
        script.write_text("print('learns')\n")
    elif change == "name":
        script.rename(project / "main.py")
    else:
        script.chmod(0o755)
    assert pack(f"file://{project}").key != before


def test_tar_unpacks_it_with_programs_executable_and_links_as_links(project: Path, tmp_path: Path) -> None:
    (project / "latest").symlink_to("data")
    (project / "same.py").symlink_to("train.py")
    (project / "data" / "start.sh").symlink_to("../run.sh")
    (project / "first.bin").symlink_to("data/images.bin")
    (tmp_path / "copy.py").write_text("elsewhere\n")
    (project / "copy.py").symlink_to("../copy.py")
    (project / "absolute.py").symlink_to(project / "train.py")
    (project / "program").symlink_to("/bin/sh")
    (project / ("a" * 90) / ("b" * 90)).mkdir(parents=True)
    (project / ("a" * 90) / ("b" * 90) / "ä.txt").write_text("long\n")
    os.mkfifo(project / "pipe")
    (tmp_path / "code.tar").write_bytes(pack(f"file://{project}").content)
    target = tmp_path / "job"
    target.mkdir()
    subprocess.run(["tar", "-xf", tmp_path / "code.tar", "-C", target], check=True)
    found = target / "workspace"
    assert os.access(found / "run.sh", os.X_OK)
    assert not os.access(found / "train.py", os.X_OK)
    assert os.readlink(found / "latest") == "data"
    assert os.readlink(found / "same.py") == "train.py"
    assert os.readlink(found / "data" / "start.sh") == "../run.sh"
    for name, content in {"copy.py": "elsewhere\n", "absolute.py": "print('trains')\n"}.items():
        assert not (found / name).is_symlink()
        assert (found / name).read_text() == content
        assert not os.access(found / name, os.X_OK)
    assert not (found / "first.bin").is_symlink()  # what it leads to is ignored
    assert (found / "first.bin").stat().st_size == 1 << 20
    assert not (found / "program").is_symlink()
    assert os.access(found / "program", os.X_OK)
    assert (found / ("a" * 90) / ("b" * 90) / "ä.txt").read_text() == "long\n"
    assert not (found / "pipe").exists()


def test_python_finds_the_rendezvous_in_what_was_unpacked(tmp_path: Path) -> None:
    """As in a container that has torch and nothing of this project."""
    opened(pack(None)).extractall(tmp_path, filter="data")
    script = "from importlib.metadata import entry_points as e; (p,) = e(group='torchrun.handlers', name='etcd-v3')"
    done = subprocess.run(
        [sys.executable, "-c", f"{script}; import tidewater; print(p.load()().__module__, tidewater.__file__)"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path / "packages")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [
        "tidewater.elastic.torchrun.handler",
        str(tmp_path / "packages" / "tidewater" / "__init__.py"),
    ]


def test_without_a_workspace_only_the_rendezvous_goes() -> None:
    tops = {name.partition("/")[2].partition("/")[0] for name in opened(pack(None)).getnames()}
    assert tops == {"tidewater", "tidewater-0.dist-info"}


def test_a_workspace_in_memory_goes_too() -> None:
    fsspec.filesystem("memory").pipe({"/project/train.py": b"pass\n"})
    assert in_workspace(pack("memory://project")) == ["train.py"]


def test_a_workspace_that_is_too_large_is_refused_with_what_is_large(project: Path) -> None:
    (project / ".torchxignore").unlink()
    with pytest.raises(Refused, match=r"has 1.0 MiB, and at most 0.5 MiB .*\.torchxignore.*largest: data \(1.0 MiB\)"):
        pack(f"file://{project}", limit_bytes=1 << 19)


def test_files_that_are_ignored_do_not_count(project: Path) -> None:
    assert in_workspace(pack(f"file://{project}", limit_bytes=1 << 19))


def test_a_link_has_no_size(project: Path) -> None:
    (project / "data" / "labels.csv").write_bytes(bytes(300 << 10))
    (project / "labels.csv").symlink_to("data/labels.csv")
    assert "labels.csv" in in_workspace(pack(f"file://{project}", limit_bytes=1 << 19))


def test_a_folder_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=f"workspace file://{tmp_path}/nowhere is no folder"):
        pack(f"file://{tmp_path}/nowhere")


def test_an_address_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(Refused, match="workspace nowhere://x can't be opened: Protocol not known"):
        pack("nowhere://x")


def test_an_archive_is_stored_once(bucket: str, project: Path) -> None:
    archive = pack(f"file://{project}")
    assert upload(archive, bucket)
    assert not upload(archive, bucket)
    stored = boto3.client("s3").get_object(Bucket=bucket, Key=archive.key)["Body"].read()
    assert stored == archive.content


def test_a_bucket_that_does_not_exist_is_refused(bucket: str) -> None:
    with pytest.raises(Refused, match=r"can't be stored in s3://another/code/.*NoSuchBucket"):
        upload(pack(None), "another")


def test_an_s3_that_does_not_answer_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{closed.getsockname()[1]}")
        monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "test")
        with pytest.raises(Refused, match=r"can't be stored in s3://tidewater-code/.*Could not connect"):
            upload(pack(None), BUCKET)


def test_missing_credentials_are_refused(bucket: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)  # it remembers those that it has found
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(Refused, match="credentials"):
        upload(pack(None), bucket)


def test_an_archive_that_nobody_has_stored_is_refused_with_the_remedy(bucket: str, project: Path) -> None:
    (project / "new.txt").write_text("moto keeps what other tests have stored\n")
    archive = pack(f"file://{project}")
    with pytest.raises(Refused, match=f"s3://{bucket}/{archive.key} isn't there.*--workspace"):
        workspace.check_stored(archive.key, bucket)
    upload(archive, bucket)
    workspace.check_stored(archive.key, bucket)


def test_a_bucket_that_cannot_be_asked_is_refused(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with pytest.raises(Refused, match=r"s3://tidewater-code/code/0\.tar can't be asked for: .*--workspace"):
        workspace.check_stored("code/0.tar", bucket)


def test_the_pod_unpacks_it_before_its_container_starts() -> None:
    code = mounted("code/0.tar", "aws-cli", "my/image", bucket=BUCKET)
    assert [each["image"] for each in code.init_containers] == ["aws-cli", "my/image"]
    assert f"s3://{BUCKET}/code/0.tar" in code.init_containers[0]["command"]
    assert [mount["mountPath"] for mount in code.mounts] == [workspace.DIRECTORY]
    assert workspace.WORKING_DIRECTORY.startswith(f"{workspace.DIRECTORY}/")


def test_describing_a_job_keeps_its_workspace_until_it_is_submitted(project: Path) -> None:
    scheduler, role = WorkspaceMixin(), Role(name="trainer", image="my/image")
    scheduler.build_workspace_and_update_role(role, f"file://{project}", {})
    assert role.image == "my/image"
    (archive,) = scheduler.kept([role.metadata[METADATA], role.metadata[METADATA]])
    assert archive == pack(f"file://{project}")
    assert scheduler.kept(["code/of-a-job-that-is-submitted-again.tar"]) == []


def test_with_image_repo_the_workspace_becomes_an_image(project: Path) -> None:
    docker, role = Images(), Role(name="trainer", image="my/image")
    scheduler, cfg = WorkspaceMixin(docker_client=docker), {"image_repo": "example.com/team/job", "quiet": True}
    scheduler.build_workspace_and_update_role(role, f"file://{project}", cfg)
    assert METADATA not in role.metadata
    assert docker.built[0]["IMAGE"] == "my/image"
    assert "train.py" in docker.built[0]["files"]
    scheduler.push_images(scheduler.dryrun_push_images(AppDef(name="job", roles=[role]), cfg))
    assert role.image == "example.com/team/job:0123"
    assert docker.pushed == [f"sha256:0123 as {role.image}"]


def test_image_repo_without_docker_is_refused(project: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no.sock")
    role = Role(name="trainer", image="my/image")
    with pytest.raises(Refused, match=r"image_repo=example.com/job: .*Start Docker, leave image_repo out"):
        WorkspaceMixin().build_workspace_and_update_role(role, f"file://{project}", {"image_repo": "example.com/job"})
