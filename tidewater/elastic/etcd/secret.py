"""The secret with which the processes of a job authenticate to each other, kept in etcd.

    secret = obtain(store, keys.secret("digits"))
    restore(store, keys.secret("digits"), secret)      # after etcd may have lost its data

The first process makes it. etcd's own access control decides who can read it.
"""

from __future__ import annotations

import secrets

from tidewater.contract import keys
from tidewater.elastic.errors import RecordError, TrainerError
from tidewater.elastic.etcd import codec
from tidewater.elastic.etcd.client import Store

_BYTES = 32


def obtain(store: Store, key: str) -> bytes:
    """Return the secret; make it if there is none. Raise StoreError, or RecordError if it can't be read."""
    while True:
        found = _read(store, key)
        if found is not None:
            return found
        _write(store, key, secrets.token_bytes(_BYTES))


def restore(store: Store, key: str, secret: bytes) -> None:
    """Write the secret again if it is missing. Raise StoreError, and TrainerError if there is another one."""
    if _write(store, key, secret) or _read(store, key) == secret:
        return
    raise TrainerError("etcd has lost the job's data and has a new secret for it: this worker must start again")


def _write(store: Store, key: str, secret: bytes) -> bool:
    return store.put_if(key, codec.encode({"secret": secret.hex()}, version=keys.SECRET_VERSION), 0)


def _read(store: Store, key: str) -> bytes | None:
    for entry in store.read(key).entries:
        if entry.key == key:
            remedy = "let all workers run the same code, or give the job a new name"
            content = codec.decode(entry.value, "secret", version=keys.SECRET_VERSION, reader="worker", remedy=remedy)
            try:
                return bytes.fromhex(content["secret"])
            except (KeyError, TypeError, ValueError) as error:
                raise RecordError(f"secret record: {error!r}") from error
    return None
