"""How the launchers of a worker over several machines find each other: the first one writes its address to etcd.

    Lookup(config, publishing(config, mailbox), mailbox, log).want(True)    # on the first one: puts a Gate into it
    Lookup(config, calling(config, hello), mailbox, log).want(True)         # on a further one: puts a Link into it

etcd is used only while machines wait for each other. If it doesn't answer, they go on waiting.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from typing import Any

from tidewater.contract import exit_codes, keys
from tidewater.elastic.addresses import Address
from tidewater.elastic.config import Config
from tidewater.elastic.errors import ConfigError, RecordError, Refused, StoreError
from tidewater.elastic.etcd import codec
from tidewater.elastic.etcd.client import EtcdStore, Store
from tidewater.elastic.etcd.probe import WHERE
from tidewater.elastic.etcd.secret import obtain, restore
from tidewater.elastic.launch.nodes.link import Gate, Mailbox, answers, call
from tidewater.elastic.launch.nodes.messages import End, Hello
from tidewater.elastic.observe.log import Lasting, Log
from tidewater.elastic.peer.handshake import Identity

_PAUSE_SECONDS = 0.5
_ID_BYTES = 8

Look = Callable[[Store, bytes], Any]
"""Does one attempt with etcd and the job's secret. Returns what it has found, or None."""


class Lookup:
    """Looks for the other machines, in a thread, while that is wanted.

    What it has found is put into ``mailbox``; also the order to end, if the job has finished, and an error that no
    retry helps. ``trouble`` says why the last attempt failed. Raise ConfigError if an address of etcd is none.
    """

    def __init__(self, config: Config, look: Look, mailbox: Mailbox, log: Log) -> None:
        self._config, self._look, self._mailbox = config, look, mailbox
        self._store = EtcdStore(config.etcd, access=config.etcd_access)
        self._away = Lasting(log, "etcd_unreachable")
        self._wanted = threading.Event()
        self.trouble = ""
        threading.Thread(target=self._run, name="lookup", daemon=True).start()

    def want(self, on: bool) -> None:
        """Begin to look for them, or end that."""
        if on:
            self._wanted.set()
        else:
            self._wanted.clear()

    def _run(self) -> None:
        store = self._store
        given, finished = self._config.secret.encode(), keys.finished(self._config.job)
        key, secret = keys.secret(self._config.job), given
        while self._wanted.wait():
            try:
                if secret != given:  # etcd may have lost its data
                    restore(store, key, secret)
                secret = secret or obtain(store, key)
                if store.read(finished).entries:
                    self._mailbox.put(End(exit_codes.FINISHED))
                    return
                found = self._look(store, secret)
                self.trouble = ""
                if found is not None:
                    self._wanted.clear()
                    self._mailbox.put(found)
            except Refused as error:
                self._mailbox.put(ConfigError(f"{error}. {WHERE}"))
                return
            except StoreError as error:
                self._away.say(error=str(error))
            except OSError as error:
                self.trouble = str(error)
            except Exception as error:  # also one that nothing here expects: without this thread the launcher waits
                self._mailbox.put(error)
                return
            time.sleep(_PAUSE_SECONDS)


def publishing(config: Config, mailbox: Mailbox) -> Look:
    """Return what opens the gate of the first machine, and keeps its address in etcd.

    The last one that was started counts, as where a frozen machine is replaced; another one, which may have been
    started by mistake, when that doesn't answer any more.
    """
    key, name = keys.launcher(config.job, config.replica), secrets.token_hex(_ID_BYTES)
    gates: list[Gate] = []
    is_published = False

    def look(store: Store, secret: bytes) -> Gate | None:
        nonlocal is_published
        if not gates:
            gates.append(Gate(Identity(secret, name), config.address, mailbox))
        mine, found = gates[0].place.address, _read(store, key) if is_published else None
        if found not in (None, mine) and answers(secret, found):
            raise OSError(f"the launcher at {found} has --shard-node 0, too")
        if found != mine:  # etcd may have lost its data
            store.put(key, codec.encode(mine._asdict(), version=keys.LAUNCHER_VERSION))
        is_new, is_published = not is_published, True
        return gates[0] if is_new else None

    return look


def calling(config: Config, hello: Callable[[], Hello]) -> Look:
    """Return what connects a further machine with the first one."""
    key = keys.launcher(config.job, config.replica)

    def look(store: Store, secret: bytes) -> Any:
        address = _read(store, key)
        if address is None:
            raise OSError("it has not written its address to etcd")
        return call(secret, address, hello())

    return look


def _read(store: Store, key: str) -> Address | None:
    """Return the address of the first machine's launcher. Raise StoreError, or RecordError if it can't be read."""
    for entry in store.read(key).entries:
        if entry.key == key:
            remedy = "let all machines run the same code, or give the job a new name"
            version = keys.LAUNCHER_VERSION
            fields = codec.decode(entry.value, "launcher", version=version, reader="launcher", remedy=remedy)
            try:
                return Address(str(fields["host"]), int(fields["port"]), str(fields["id"]))
            except (KeyError, ValueError) as error:
                raise RecordError(f"launcher record: {error!r}") from error
    return None
