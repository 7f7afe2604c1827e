"""The first request to etcd, which shows whether this worker can reach it and may use it.

first_contact(store, "digits", time.monotonic() + 5)     # ConfigError or StoreError, in one sentence
"""

from __future__ import annotations

import time

from tidewater.contract import env, keys
from tidewater.elastic.errors import ConfigError, Refused, StoreError
from tidewater.elastic.etcd.client import Store

_RETRY_SECONDS = 0.3
_NEVER = -1
"""A revision that no key has."""
WHERE = f"See --etcd, --etcd-user with {env.ETCD_PASSWORD}, --etcd-cacert, --etcd-cert and --etcd-key"
"""The settings to look at when etcd refuses a request."""


def first_contact(store: Store, job: str, deadline: float) -> None:
    """Return once etcd has been reached and lets this worker read and write the job's records.

    Raises ConfigError at once if etcd was reached and will not have it, and StoreError if nothing has answered by the
    (monotonic) deadline: etcd may be starting, so a restart of this worker may cure that.
    """
    while True:
        try:
            store.read(keys.job(job))
            # Writes nothing, since no key has this revision; but etcd looks whether the user might.
            store.put_if(keys.generation(job), b"", _NEVER)
            return
        except Refused as error:
            raise ConfigError(f"{error}. {WHERE}") from error
        except StoreError:
            if time.monotonic() + _RETRY_SECONDS > deadline:
                raise
            time.sleep(_RETRY_SECONDS)
