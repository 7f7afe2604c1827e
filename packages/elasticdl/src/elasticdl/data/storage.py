"""Files on a volume or in S3, with the errors of this package: see `tidewater.elastic.storage`.

STORE.files("s3://bucket/mnist/train")
STORE.opened("/data/mnist/train/data-00000")
"""

from __future__ import annotations

from elasticdl.errors import DamagedData, DataError, MissingData, Unavailable
from tidewater.elastic.storage.errors import Errors
from tidewater.elastic.storage.store import Store

STORE = Store(
    Errors(wrong=DataError, missing=MissingData, damaged=DamagedData, unavailable=Unavailable),
    known="known are paths, file:///path and s3://bucket/prefix; another one needs a custom_data_reader",
)
