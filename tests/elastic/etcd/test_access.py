"""An etcd accepts this worker, or one sentence says why it does not and names the remedy."""

from __future__ import annotations

import http.server
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.elastic.etcd.secured import PASSWORD, USER, access_to, ask, run_with_users, secured
from tests.elastic.workers import free_port
from tidewater.elastic.errors import ConfigError, StoreError
from tidewater.elastic.etcd.access import Access
from tidewater.elastic.etcd.client import EtcdStore
from tidewater.elastic.etcd.probe import first_contact
from tidewater.elastic.etcd.ranges import under

__all__ = ["secured"]

KEY = "/tidewater/digits/x"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield an etcd that requires user and password."""
    yield from run_with_users(tmp_path_factory.mktemp("users"))


def contact(url: str, access: Access | None = None, *, seconds: float = 30, attempt_seconds: float = 60) -> None:
    store = EtcdStore((url,), access=access or Access(), timeout_seconds=attempt_seconds)
    first_contact(store, "digits", time.monotonic() + seconds)


def refusal(url: str, access: Access | None = None) -> str:
    """Return the error with which a worker ends, without another attempt."""
    began = time.monotonic()
    with pytest.raises(ConfigError) as caught:
        contact(url, access, seconds=60)
    assert time.monotonic() - began < 30
    assert url in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_an_etcd_without_authentication_accepts_a_client_with_a_user(etcd: str) -> None:
    contact(etcd)
    contact(etcd, Access(USER, PASSWORD))
    assert EtcdStore((etcd,)).read("/tidewater/digits/").entries == ()


def test_all_operations_work_with_user_and_password(guarded: str) -> None:
    store = EtcdStore((guarded,), access=Access(USER, PASSWORD))
    first_contact(store, "digits", time.monotonic() + 30)
    lease = store.grant(60)
    store.put(KEY, b"1", lease)
    snapshot = store.read(KEY)
    assert [entry.value for entry in snapshot.entries] == [b"1"]
    assert store.keep_alive(lease)
    watch = store.watch({under(KEY): snapshot.revision})
    assert next(iter(watch))[0].key == KEY
    watch.close()
    store.revoke(lease)


def test_a_token_that_etcd_no_longer_accepts_is_replaced(guarded: str) -> None:
    store = EtcdStore((guarded,), access=Access(USER, PASSWORD))
    store.put(KEY, b"1")
    root = ask(guarded, "/v3/auth/authenticate", {"name": "root", "password": "root"})["token"]
    ask(guarded, "/v3/auth/user/changepw", {"name": USER, "password": PASSWORD}, root)  # this revokes the user's tokens
    store.put(KEY, b"2")
    assert [entry.value for entry in store.read(KEY).entries] == [b"2"]


def test_a_missing_user_is_reported(guarded: str) -> None:
    sentence = refusal(guarded)
    assert "it wants a user and a password" in sentence
    assert "--etcd-user with TIDEWATER_ETCD_PASSWORD" in sentence


def test_a_wrong_password_is_reported_but_not_shown(guarded: str) -> None:
    sentence = refusal(guarded, Access(USER, "battery staple"))
    assert "user or password is wrong" in sentence
    assert "battery" not in sentence
    assert "battery" not in repr(Access(USER, "battery staple"))


def test_a_user_without_write_permission_gets_an_error_that_says_what_to_grant(guarded: str) -> None:
    assert "readwrite on the prefix /tidewater/" in refusal(guarded, Access("guest", PASSWORD))


def test_tls_works_with_a_certificate_authority_and_a_client_certificate(secured: tuple[str, Path]) -> None:
    url, folder = secured
    contact(url, access_to(folder))


def test_tls_errors_name_their_cause(secured: tuple[str, Path], etcd: str) -> None:
    url, folder = secured
    assert "give the authority that signed it (cacert)" in refusal(url)
    with pytest.raises((ConfigError, StoreError), match="write http://"):
        contact(etcd.replace("http:", "https:"), seconds=0)
    with pytest.raises((ConfigError, StoreError), match=r"client certificate \(cert, key\)"):
        contact(url, Access.of(cacert=str(folder / "ca.pem")), seconds=0)
    with pytest.raises((ConfigError, StoreError), match="write https://"):
        contact(url.replace("https:", "http:"), seconds=0)


def test_unusable_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--etcd-cacert .*missing\.pem"):
        Access.of(cacert=str(tmp_path / "missing.pem"))
    with pytest.raises(ConfigError, match="belong together"):
        Access.of(cert="one.pem")
    with pytest.raises(ConfigError, match="belong together"):
        Access.of(user="trainer")


def unreachable(url: str) -> str:
    began = time.monotonic()
    with pytest.raises(StoreError) as caught:
        contact(url, seconds=1, attempt_seconds=1)
    assert time.monotonic() - began < 30
    assert url in str(caught.value)
    return str(caught.value)


def test_an_address_that_does_not_answer_is_reported_within_seconds() -> None:
    assert "nothing listens there" in unreachable(f"http://127.0.0.1:{free_port()}")
    assert "spelling" in unreachable("http://no-such-host.invalid:2379")
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        assert "no answer in time" in unreachable(f"http://127.0.0.1:{deaf.getsockname()[1]}")


def test_a_server_that_is_not_etcd_is_reported() -> None:
    class Page(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_error(404)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        assert "not etcd" in refusal(f"http://127.0.0.1:{server.server_address[1]}")
        server.shutdown()
