"""The packages of people's scripts: what a lock may say, and a sentence for each line that is refused."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import settings
from tests import graph
from tidewater.project import lock

HASH = "--hash=sha256:" + "a" * 64
OTHER = "--hash=sha256:" + "b" * 64
URL = "https://mirror.example/simple"


def parsed(text: str, folder: Path = Path()) -> settings.Packages:
    found, mistakes = lock.parse(text, folder)
    assert mistakes == []
    return found


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("alpha==1.0", "alpha has no hash; lock with `uv pip compile --generate-hashes`", id="no-hash"),
        pytest.param(f"alpha==1.0 --hash=md5:{'a' * 32}", "is no hash of SHA-256", id="weak-hash"),
        pytest.param(f"alpha>=1.0 {HASH}", "alpha has no single version", id="range"),
        pytest.param(f"alpha==1.* {HASH}", "alpha has no single version", id="wildcard"),
        pytest.param(f"alpha==1,==1 {HASH}", "alpha has no single version", id="two-versions"),
        pytest.param(f"alpha {HASH}", "alpha has no single version", id="no-version"),
        pytest.param(f"torch==2.14.1 {HASH}", "torch: the image has it", id="torch"),
        pytest.param(f"Torch==2.14.1;python_version>'3' {HASH}", "torch: the image has it", id="torch-with-a-marker"),
        pytest.param(f"NumPy==2.3 {HASH}", "numpy: the image has it", id="numpy"),
        pytest.param(f"nvidia-cublas-cu12==1 {HASH}", "nvidia-cublas-cu12: the image has it", id="cuda"),
        pytest.param(f"nvidia_nccl.cu13==1 {HASH}", "nvidia-nccl-cu13: the image has it", id="nccl"),
        pytest.param(f"tidewater==1 {HASH}", "tidewater: the image has it", id="tidewater"),
        pytest.param("-e .", "-e installs from sources", id="editable"),
        pytest.param("--editable=git+https://host/x", "installs from sources", id="editable-git"),
        pytest.param("-r other.txt", "-r reads another file", id="other-file"),
        pytest.param("--constraint other.txt", "--constraint reads another file", id="constraints"),
        pytest.param(f"https://host/alpha-1.0-py3-none-any.whl {HASH}", "an address or a path", id="address"),
        pytest.param(f"alpha @ https://host/alpha.whl {HASH}", "an address or a path", id="named-address"),
        pytest.param(f"./wheels/alpha-1.0.whl {HASH}", "an address or a path", id="path"),
        pytest.param(f"alpha-1.0.tar.gz {HASH}", "an address or a path", id="archive"),
        pytest.param("this is prose", "neither a requirement nor an option", id="prose"),
        pytest.param(f"alpha==1.0 ; os_nam == 'x' {HASH}", "neither a requirement nor an option", id="marker"),
        pytest.param(f"alpha==1.0 {HASH}\nAlpha==1.1 {OTHER}", "line 2: alpha is there twice", id="twice"),
        pytest.param("--trusted-host mirror.example", "--trusted-host is not supported", id="option"),
        pytest.param("--no-binary alpha", "--no-binary is not supported", id="sources"),
        pytest.param("--index-url http://mirror.example/simple", "must begin with https://", id="http"),
        pytest.param("-i https://[mirror", "can't be read", id="no-address"),
        pytest.param("--find-links nowhere", "must name a folder of wheels", id="no-folder"),
        pytest.param("--find-links https://host/wheels", "must name a folder of wheels", id="page"),
        pytest.param("", "names no package", id="empty"),
        pytest.param("# nothing\n\n", "names no package", id="only-comments"),
        pytest.param("--no-index", "names no package", id="only-options"),
    ],
)
def test_a_line_that_can_not_be_installed_is_one_sentence(text: str, words: str) -> None:
    _, (mistake,) = lock.parse(text, Path())
    assert words in mistake
    assert "\n" not in mistake


@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                ["", "-", "-f ", "--find-links=", "-i https://", "alpha==", "alpha @ ", f"alpha==1.0 {HASH}"]
            ),
            st.text(max_size=12),
        ).map("".join),
        max_size=4,
    )
)
def test_no_text_breaks_the_reader(lines: list[str]) -> None:
    found, mistakes = lock.parse("\n".join(lines), Path())
    assert mistakes or found.lock
    assert not any("\n" in mistake for mistake in mistakes)


def test_every_wrong_line_is_named_by_its_number() -> None:
    _, mistakes = lock.parse(f"# a comment\nalpha==1.0 \\\n  {HASH}\n\nbeta==1\n-e .\ngamma", Path())
    assert [mistake.partition(":")[0] for mistake in mistakes] == ["line 5", "line 6", "line 7"]


@pytest.mark.parametrize("place", ["https://me:token@mirror.example/simple", "https://token@mirror.example/simple"])
@pytest.mark.parametrize("option", ["--index-url", "--extra-index-url", "-i"])
def test_credentials_in_an_address_are_refused_and_not_shown(option: str, place: str, tmp_path: Path) -> None:
    lock = tmp_path / "requirements.txt"
    lock.write_text(f"{option} {place}\nalpha==1.0 {HASH}\n")
    with pytest.raises(settings.ConfigurationError, match="has credentials in it") as refused:
        graph.parsed(trainingPackages=str(lock))
    assert "token" not in str(refused.value)


def test_what_the_job_does_anyway_may_be_said() -> None:
    said = "--require-hashes\n--only-binary :all:\n--prefer-binary\n"
    assert parsed(f"{said}alpha==1.0 {HASH}") == parsed(f"alpha==1.0 {HASH}")


def test_no_message_shows_more_of_an_option_than_its_name() -> None:
    _, mistakes = lock.parse("--index-url:https://me:token@host/simple\n-ihttps://token@host", Path())
    assert len(mistakes) == 2
    assert "token" not in str(mistakes)


def test_an_index_of_ones_own_and_markers_are_left_to_pip() -> None:
    marker = 'beta==2; python_version < "3.12"'
    found = parsed(f"-i {URL}\n--extra-index-url={URL}/2\n--no-index\nalpha[x]==1.0 {HASH} {OTHER}\n{marker} {HASH}")
    assert found.lock.splitlines() == [
        f"--index-url {URL}",
        f"--extra-index-url {URL}/2",
        "--no-index",
        f"alpha[x]==1.0 {HASH} {OTHER}",
        f"{marker} {HASH}",
    ]


def test_one_package_may_have_a_line_for_each_python() -> None:
    text = f"alpha==1; python_version < '3.12' {HASH}\nalpha==2; python_version >= '3.12' {OTHER}"
    assert len(parsed(text).lock.splitlines()) == 2


def test_comments_and_the_order_of_lines_change_nothing() -> None:
    one = parsed(f"alpha==1.0 {HASH} {OTHER}\nbeta==1.0 {HASH}")
    other = parsed(
        f"# by uv\nbeta==1.0 \\\n    {HASH}\n    # via alpha\nalpha==1.0 \\\n    {OTHER} \\\n    {HASH} # why\n"
    )
    assert one == other
    assert one.digest == other.digest
    assert one.digest != parsed(f"alpha==1.0 {HASH}\nbeta==1.0 {HASH}").digest


def test_nvidias_libraries_that_torch_lacks_may_be_added() -> None:
    assert parsed(f"nvidia-ml-py==13 {HASH}\nnvidia-dali-cuda130==2 {HASH}\ntorchmetrics==1 {HASH}").lock


def test_wheels_of_a_folder_travel_if_the_lock_names_them(tmp_path: Path) -> None:
    folder = tmp_path / "wheels"
    folder.mkdir()
    for name in ("alpha-1.0-py3-none-any.whl", "beta-1.0-py3-none-any.whl", "notes.whl"):
        (folder / name).write_bytes(name.encode())
    digest = hashlib.sha256(b"alpha-1.0-py3-none-any.whl").hexdigest()
    found = parsed(f"-f wheels\nalpha==1.0 --hash=sha256:{digest}\nbeta==1.0 {HASH}", tmp_path)
    assert [path.name for path in found.wheels] == ["alpha-1.0-py3-none-any.whl"]
    assert "wheels" not in found.lock


def test_wheels_that_are_too_large_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "LARGEST_MIB", 0)
    (tmp_path / "alpha-1.0-py3-none-any.whl").write_bytes(b"x")
    digest = hashlib.sha256(b"x").hexdigest()
    _, (mistake,) = lock.parse(f"-f .\nalpha==1.0 --hash=sha256:{digest}", tmp_path)
    assert "let an index serve the largest: alpha-1.0-py3-none-any.whl" in mistake


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        pytest.param("lock.txt", b"alpha==1.0 \xff", "is not UTF-8 (byte 11)", id="not-utf-8"),
        pytest.param("lock.txt", b"", "names no package", id="empty"),
        pytest.param("lock.toml", b"", "must be the path of a .txt file", id="other-kind"),
        pytest.param("folder.txt", None, "is not a file that can be read", id="folder"),
    ],
)
def test_a_file_that_is_no_lock_is_one_mistake(name: str, content: bytes | None, words: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.mkdir() if content is None else path.write_bytes(content)
    with pytest.raises(settings.ConfigurationError) as refused:
        graph.parsed(trainingPackages=str(path))
    (mistake,) = refused.value.mistakes
    assert mistake.startswith(f"trainingPackages = {path}: ")
    assert words in mistake
