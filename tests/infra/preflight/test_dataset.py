"""A dataset that is not there is refused before anything is made; one that the deployer can't see is a warning."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pulumi
import pytest

import settings
from infra import preflight
from infra.account import connect
from infra.preflight import dataset, lookup
from infra.preflight.dataset import Found
from tests import graph
from tests.infra.preflight.world import stack

ARCHIVE, FOLDER, WEB = "s3://pictures/cats.zip", "s3://pictures/cats/", "https://pictures.example/cats.zip"
BUCKET = "aws:s3/getBucket:getBucket"
HERE = "us-west-2"


def of(uri: str) -> settings.Settings:
    return stack(dataset=uri, datasetStorage="s3" if uri.endswith("/") else "efs")


@pytest.mark.parametrize(
    ("uri", "found", "words"),
    [
        (ARCHIVE, Found(error="reading S3 Bucket (pictures): couldn't find resource"), "there is no bucket pictures"),
        (ARCHIVE, Found(region=HERE), "the bucket pictures has no object cats.zip"),
        (ARCHIVE, Found(region=HERE, keys=("cats.zip.old",)), "the bucket pictures has no object cats.zip"),
        (FOLDER, Found(region=HERE), "the bucket pictures has nothing in the folder cats/"),
        (FOLDER, Found(region="eu-west-1", keys=("cats/1",)), "the bucket is in eu-west-1, and workers would read"),
        (WEB, Found(status=404), "the server has nothing there (its answer is 404)"),
        (WEB, Found(status=410), "the server has nothing there (its answer is 410)"),
    ],
)
def test_what_is_not_there_is_refused(uri: str, found: Found, words: str) -> None:
    (mistake,) = dataset.mistakes(of(uri), found)
    assert mistake.startswith(f"dataset = {uri}: {words}")
    assert dataset.warnings(of(uri), found) == []


@pytest.mark.parametrize(
    ("uri", "found", "words"),
    [
        (ARCHIVE, Found(error="StatusCode: 403, Forbidden"), "could not be looked at from here"),
        (FOLDER, Found(error="AccessDenied"), "could not be looked at from here"),
        (ARCHIVE, Found(region="eu-west-1", keys=("cats.zip",)), "AWS bills the transfer of the archive to us-west-2"),
        (WEB, Found(status=403), "the server's answer is 403"),
        (WEB, Found(status=503), "the server's answer is 503"),
        (WEB, Found(error="timed out"), "timed out"),
    ],
)
def test_what_could_not_be_seen_is_a_warning(uri: str, found: Found, words: str) -> None:
    assert dataset.mistakes(of(uri), found) == []
    (warning,) = dataset.warnings(of(uri), found)
    assert words in warning


@pytest.mark.parametrize(
    ("uri", "found"),
    [
        ("digits", None),
        (ARCHIVE, Found(region=HERE, keys=("cats.zip",))),
        (FOLDER, Found(region=HERE, keys=("cats/1.png",))),
        (WEB, Found()),
    ],
)
def test_what_is_there_needs_no_word(uri: str, found: Found | None) -> None:
    assert dataset.mistakes(of(uri), found) == dataset.warnings(of(uri), found) == []


@pytest.mark.parametrize("exists", [False, True], ids=["new", "live"])
def test_the_program_asks_s3_and_the_web_server_and_a_stack_that_exists_is_only_warned(
    exists: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    warned: list[str] = []
    monkeypatch.setattr(pulumi.log, "warn", lambda text, *_: warned.append(text))
    monkeypatch.setattr(lookup, "head", lambda uri: Found(status=404 if uri == WEB else 200))

    def ask(token: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        if token == BUCKET:
            raise graph.Refused("reading S3 Bucket (pictures): couldn't find resource")
        if token == "aws:ec2/getVpcs:getVpcs" and not exists:
            return {"ids": []}
        return graph.answer(token, arguments)

    def program() -> None:
        wanted = settings.load()
        preflight.check(wanted, connect(wanted), graph.aws)

    for uri in (ARCHIVE, WEB):
        config = {**graph.defaults(), "publicAccessCidrs": [graph.ADDRESS], "dataset": uri}
        with nullcontext() if exists else pytest.raises(settings.ConfigurationError, match=f"dataset = {uri}: the"):
            graph.run(program, config, ask=ask)
    assert [each.split(": the")[0] for each in warned] == ([f"dataset = {uri}" for uri in (ARCHIVE, WEB)] * exists)


@pytest.fixture
def server() -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:  # the base class's name
            self.send_response(200 if self.path == "/there.zip" else 404)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as found:
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{found.server_port}"
        found.shutdown()
        thread.join()


def test_a_web_server_is_asked_for_the_headers_only(server: str) -> None:
    assert dataset.head(f"{server}/there.zip") == Found(status=200)
    assert dataset.head(f"{server}/elsewhere.zip") == Found(status=404)
    assert dataset.head("http://127.0.0.1:1/there.zip").error
