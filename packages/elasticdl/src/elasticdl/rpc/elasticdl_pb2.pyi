from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TaskType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TRAINING: _ClassVar[TaskType]
    EVALUATION: _ClassVar[TaskType]
    PREDICTION: _ClassVar[TaskType]
    EXPORT: _ClassVar[TaskType]
    WAIT: _ClassVar[TaskType]
    STOP: _ClassVar[TaskType]
TRAINING: TaskType
EVALUATION: TaskType
PREDICTION: TaskType
EXPORT: TaskType
WAIT: TaskType
STOP: TaskType

class Nothing(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Tensor(_message.Message):
    __slots__ = ("dtype", "shape", "data")
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    dtype: str
    shape: _containers.RepeatedScalarFieldContainer[int]
    data: bytes
    def __init__(self, dtype: _Optional[str] = ..., shape: _Optional[_Iterable[int]] = ..., data: _Optional[bytes] = ...) -> None: ...

class Task(_message.Message):
    __slots__ = ("id", "type", "shard", "start", "end", "indices", "model_version", "epoch", "wait_seconds", "reason")
    ID_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    INDICES_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    WAIT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    id: int
    type: TaskType
    shard: str
    start: int
    end: int
    indices: _containers.RepeatedScalarFieldContainer[int]
    model_version: int
    epoch: int
    wait_seconds: float
    reason: str
    def __init__(self, id: _Optional[int] = ..., type: _Optional[_Union[TaskType, str]] = ..., shard: _Optional[str] = ..., start: _Optional[int] = ..., end: _Optional[int] = ..., indices: _Optional[_Iterable[int]] = ..., model_version: _Optional[int] = ..., epoch: _Optional[int] = ..., wait_seconds: _Optional[float] = ..., reason: _Optional[str] = ...) -> None: ...

class Presence(_message.Message):
    __slots__ = ("worker", "process", "tasks", "leaving")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    worker: str
    process: str
    tasks: _containers.RepeatedScalarFieldContainer[int]
    leaving: bool
    def __init__(self, worker: _Optional[str] = ..., process: _Optional[str] = ..., tasks: _Optional[_Iterable[int]] = ..., leaving: _Optional[bool] = ...) -> None: ...

class Notice(_message.Message):
    __slots__ = ("stop",)
    STOP_FIELD_NUMBER: _ClassVar[int]
    stop: bool
    def __init__(self, stop: _Optional[bool] = ...) -> None: ...

class GetTaskRequest(_message.Message):
    __slots__ = ("worker", "process", "holding")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    HOLDING_FIELD_NUMBER: _ClassVar[int]
    worker: str
    process: str
    holding: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, worker: _Optional[str] = ..., process: _Optional[str] = ..., holding: _Optional[_Iterable[int]] = ...) -> None: ...

class TaskReport(_message.Message):
    __slots__ = ("task", "worker", "process", "error", "records", "metric_states", "given_back")
    class MetricStatesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: bytes
        def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...
    TASK_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    METRIC_STATES_FIELD_NUMBER: _ClassVar[int]
    GIVEN_BACK_FIELD_NUMBER: _ClassVar[int]
    task: int
    worker: str
    process: str
    error: str
    records: int
    metric_states: _containers.ScalarMap[str, bytes]
    given_back: bool
    def __init__(self, task: _Optional[int] = ..., worker: _Optional[str] = ..., process: _Optional[str] = ..., error: _Optional[str] = ..., records: _Optional[int] = ..., metric_states: _Optional[_Mapping[str, bytes]] = ..., given_back: _Optional[bool] = ...) -> None: ...

class TaskReply(_message.Message):
    __slots__ = ("counted",)
    COUNTED_FIELD_NUMBER: _ClassVar[int]
    counted: bool
    def __init__(self, counted: _Optional[bool] = ...) -> None: ...

class VersionReport(_message.Message):
    __slots__ = ("server", "version")
    SERVER_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    server: int
    version: int
    def __init__(self, server: _Optional[int] = ..., version: _Optional[int] = ...) -> None: ...

class JobRequest(_message.Message):
    __slots__ = ("records", "epochs", "minibatch_size", "minibatches_per_task", "shuffle_records")
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    MINIBATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    MINIBATCHES_PER_TASK_FIELD_NUMBER: _ClassVar[int]
    SHUFFLE_RECORDS_FIELD_NUMBER: _ClassVar[int]
    records: int
    epochs: int
    minibatch_size: int
    minibatches_per_task: int
    shuffle_records: bool
    def __init__(self, records: _Optional[int] = ..., epochs: _Optional[int] = ..., minibatch_size: _Optional[int] = ..., minibatches_per_task: _Optional[int] = ..., shuffle_records: _Optional[bool] = ...) -> None: ...

class Job(_message.Message):
    __slots__ = ("name", "epochs", "records", "minibatch_size", "tasks", "ended")
    NAME_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    MINIBATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    name: str
    epochs: int
    records: int
    minibatch_size: int
    tasks: int
    ended: int
    def __init__(self, name: _Optional[str] = ..., epochs: _Optional[int] = ..., records: _Optional[int] = ..., minibatch_size: _Optional[int] = ..., tasks: _Optional[int] = ..., ended: _Optional[int] = ...) -> None: ...

class TableInfo(_message.Message):
    __slots__ = ("name", "dim", "initializer", "dtype", "seed", "num_ids")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DIM_FIELD_NUMBER: _ClassVar[int]
    INITIALIZER_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    NUM_IDS_FIELD_NUMBER: _ClassVar[int]
    name: str
    dim: int
    initializer: str
    dtype: str
    seed: int
    num_ids: int
    def __init__(self, name: _Optional[str] = ..., dim: _Optional[int] = ..., initializer: _Optional[str] = ..., dtype: _Optional[str] = ..., seed: _Optional[int] = ..., num_ids: _Optional[int] = ...) -> None: ...

class Rows(_message.Message):
    __slots__ = ("table", "ids", "values")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    table: str
    ids: _containers.RepeatedScalarFieldContainer[int]
    values: Tensor
    def __init__(self, table: _Optional[str] = ..., ids: _Optional[_Iterable[int]] = ..., values: _Optional[_Union[Tensor, _Mapping]] = ...) -> None: ...

class ModelPart(_message.Message):
    __slots__ = ("dense", "tables", "rows", "version", "optimizer", "process", "buffers")
    class DenseEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Tensor
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Tensor, _Mapping]] = ...) -> None: ...
    DENSE_FIELD_NUMBER: _ClassVar[int]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    OPTIMIZER_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    BUFFERS_FIELD_NUMBER: _ClassVar[int]
    dense: _containers.MessageMap[str, Tensor]
    tables: _containers.RepeatedCompositeFieldContainer[TableInfo]
    rows: _containers.RepeatedCompositeFieldContainer[Rows]
    version: int
    optimizer: str
    process: str
    buffers: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, dense: _Optional[_Mapping[str, Tensor]] = ..., tables: _Optional[_Iterable[_Union[TableInfo, _Mapping]]] = ..., rows: _Optional[_Iterable[_Union[Rows, _Mapping]]] = ..., version: _Optional[int] = ..., optimizer: _Optional[str] = ..., process: _Optional[str] = ..., buffers: _Optional[_Iterable[str]] = ...) -> None: ...

class ServerState(_message.Message):
    __slots__ = ("initialized", "version", "process", "index", "servers")
    INITIALIZED_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    SERVERS_FIELD_NUMBER: _ClassVar[int]
    initialized: bool
    version: int
    process: str
    index: int
    servers: int
    def __init__(self, initialized: _Optional[bool] = ..., version: _Optional[int] = ..., process: _Optional[str] = ..., index: _Optional[int] = ..., servers: _Optional[int] = ...) -> None: ...

class PullRequest(_message.Message):
    __slots__ = ("newer_than", "snapshot", "process")
    NEWER_THAN_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    newer_than: int
    snapshot: int
    process: str
    def __init__(self, newer_than: _Optional[int] = ..., snapshot: _Optional[int] = ..., process: _Optional[str] = ...) -> None: ...

class PullRowsRequest(_message.Message):
    __slots__ = ("wanted", "snapshot")
    WANTED_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    wanted: _containers.RepeatedCompositeFieldContainer[Rows]
    snapshot: int
    def __init__(self, wanted: _Optional[_Iterable[_Union[Rows, _Mapping]]] = ..., snapshot: _Optional[int] = ...) -> None: ...

class PullRowsReply(_message.Message):
    __slots__ = ("rows", "version", "process")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    rows: _containers.RepeatedCompositeFieldContainer[Rows]
    version: int
    process: str
    def __init__(self, rows: _Optional[_Iterable[_Union[Rows, _Mapping]]] = ..., version: _Optional[int] = ..., process: _Optional[str] = ...) -> None: ...

class Gradients(_message.Message):
    __slots__ = ("worker", "process", "minibatch", "version", "dense", "rows", "learning_rate", "buffers", "server")
    class DenseEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Tensor
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Tensor, _Mapping]] = ...) -> None: ...
    class BuffersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Tensor
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Tensor, _Mapping]] = ...) -> None: ...
    WORKER_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    MINIBATCH_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DENSE_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    LEARNING_RATE_FIELD_NUMBER: _ClassVar[int]
    BUFFERS_FIELD_NUMBER: _ClassVar[int]
    SERVER_FIELD_NUMBER: _ClassVar[int]
    worker: str
    process: str
    minibatch: int
    version: int
    dense: _containers.MessageMap[str, Tensor]
    rows: _containers.RepeatedCompositeFieldContainer[Rows]
    learning_rate: float
    buffers: _containers.MessageMap[str, Tensor]
    server: str
    def __init__(self, worker: _Optional[str] = ..., process: _Optional[str] = ..., minibatch: _Optional[int] = ..., version: _Optional[int] = ..., dense: _Optional[_Mapping[str, Tensor]] = ..., rows: _Optional[_Iterable[_Union[Rows, _Mapping]]] = ..., learning_rate: _Optional[float] = ..., buffers: _Optional[_Mapping[str, Tensor]] = ..., server: _Optional[str] = ...) -> None: ...

class GradientsReply(_message.Message):
    __slots__ = ("accepted", "version", "process")
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    accepted: bool
    version: int
    process: str
    def __init__(self, accepted: _Optional[bool] = ..., version: _Optional[int] = ..., process: _Optional[str] = ...) -> None: ...

class SnapshotRequest(_message.Message):
    __slots__ = ("snapshot",)
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    snapshot: int
    def __init__(self, snapshot: _Optional[int] = ...) -> None: ...

class SaveRequest(_message.Message):
    __slots__ = ("directory", "version")
    DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    directory: str
    version: int
    def __init__(self, directory: _Optional[str] = ..., version: _Optional[int] = ...) -> None: ...

class SavedPart(_message.Message):
    __slots__ = ("file", "size", "sha256", "version")
    FILE_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    file: str
    size: int
    sha256: str
    version: int
    def __init__(self, file: _Optional[str] = ..., size: _Optional[int] = ..., sha256: _Optional[str] = ..., version: _Optional[int] = ...) -> None: ...
