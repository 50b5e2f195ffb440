from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class JobKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    JOB_KIND_UNSPECIFIED: _ClassVar[JobKind]
    COMPACTION: _ClassVar[JobKind]
    BULK_LOAD: _ClassVar[JobKind]
JOB_KIND_UNSPECIFIED: JobKind
COMPACTION: JobKind
BULK_LOAD: JobKind

class Manifest(_message.Message):
    __slots__ = ("manifest_format_version", "writer_epoch", "compactor_epoch", "wal_id_last_compacted", "wal_id_last_seen", "leveled_ssts", "snapshots", "unique_id", "max_parallel_writes", "sorted_runs", "next_sst_base", "jobs", "wal_gc_boundary", "manifest_gc_boundary", "gc_min_age_ms", "last_seq", "transactions", "created_ms", "writer")
    MANIFEST_FORMAT_VERSION_FIELD_NUMBER: _ClassVar[int]
    WRITER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    COMPACTOR_EPOCH_FIELD_NUMBER: _ClassVar[int]
    WAL_ID_LAST_COMPACTED_FIELD_NUMBER: _ClassVar[int]
    WAL_ID_LAST_SEEN_FIELD_NUMBER: _ClassVar[int]
    LEVELED_SSTS_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOTS_FIELD_NUMBER: _ClassVar[int]
    UNIQUE_ID_FIELD_NUMBER: _ClassVar[int]
    MAX_PARALLEL_WRITES_FIELD_NUMBER: _ClassVar[int]
    SORTED_RUNS_FIELD_NUMBER: _ClassVar[int]
    NEXT_SST_BASE_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    WAL_GC_BOUNDARY_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_GC_BOUNDARY_FIELD_NUMBER: _ClassVar[int]
    GC_MIN_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQ_FIELD_NUMBER: _ClassVar[int]
    TRANSACTIONS_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    WRITER_FIELD_NUMBER: _ClassVar[int]
    manifest_format_version: int
    writer_epoch: int
    compactor_epoch: int
    wal_id_last_compacted: int
    wal_id_last_seen: int
    leveled_ssts: _containers.RepeatedCompositeFieldContainer[SstInfo]
    snapshots: _containers.RepeatedCompositeFieldContainer[Snapshot]
    unique_id: bytes
    max_parallel_writes: int
    sorted_runs: _containers.RepeatedCompositeFieldContainer[SortedRun]
    next_sst_base: int
    jobs: _containers.RepeatedCompositeFieldContainer[Job]
    wal_gc_boundary: int
    manifest_gc_boundary: int
    gc_min_age_ms: int
    last_seq: int
    transactions: _containers.RepeatedCompositeFieldContainer[Transaction]
    created_ms: int
    writer: Writer
    def __init__(self, manifest_format_version: _Optional[int] = ..., writer_epoch: _Optional[int] = ..., compactor_epoch: _Optional[int] = ..., wal_id_last_compacted: _Optional[int] = ..., wal_id_last_seen: _Optional[int] = ..., leveled_ssts: _Optional[_Iterable[_Union[SstInfo, _Mapping]]] = ..., snapshots: _Optional[_Iterable[_Union[Snapshot, _Mapping]]] = ..., unique_id: _Optional[bytes] = ..., max_parallel_writes: _Optional[int] = ..., sorted_runs: _Optional[_Iterable[_Union[SortedRun, _Mapping]]] = ..., next_sst_base: _Optional[int] = ..., jobs: _Optional[_Iterable[_Union[Job, _Mapping]]] = ..., wal_gc_boundary: _Optional[int] = ..., manifest_gc_boundary: _Optional[int] = ..., gc_min_age_ms: _Optional[int] = ..., last_seq: _Optional[int] = ..., transactions: _Optional[_Iterable[_Union[Transaction, _Mapping]]] = ..., created_ms: _Optional[int] = ..., writer: _Optional[_Union[Writer, _Mapping]] = ...) -> None: ...

class Writer(_message.Message):
    __slots__ = ("epoch", "host", "pid", "process", "program", "opened_ms", "lease")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_FIELD_NUMBER: _ClassVar[int]
    OPENED_MS_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    host: str
    pid: int
    process: str
    program: str
    opened_ms: int
    lease: bytes
    def __init__(self, epoch: _Optional[int] = ..., host: _Optional[str] = ..., pid: _Optional[int] = ..., process: _Optional[str] = ..., program: _Optional[str] = ..., opened_ms: _Optional[int] = ..., lease: _Optional[bytes] = ...) -> None: ...

class SstInfo(_message.Message):
    __slots__ = ("id", "first_key", "filter_offset", "filter_len", "block_meta_offset", "block_meta_len", "size", "row_count", "max_seq", "last_key")
    ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_KEY_FIELD_NUMBER: _ClassVar[int]
    FILTER_OFFSET_FIELD_NUMBER: _ClassVar[int]
    FILTER_LEN_FIELD_NUMBER: _ClassVar[int]
    BLOCK_META_OFFSET_FIELD_NUMBER: _ClassVar[int]
    BLOCK_META_LEN_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    ROW_COUNT_FIELD_NUMBER: _ClassVar[int]
    MAX_SEQ_FIELD_NUMBER: _ClassVar[int]
    LAST_KEY_FIELD_NUMBER: _ClassVar[int]
    id: int
    first_key: bytes
    filter_offset: int
    filter_len: int
    block_meta_offset: int
    block_meta_len: int
    size: int
    row_count: int
    max_seq: int
    last_key: bytes
    def __init__(self, id: _Optional[int] = ..., first_key: _Optional[bytes] = ..., filter_offset: _Optional[int] = ..., filter_len: _Optional[int] = ..., block_meta_offset: _Optional[int] = ..., block_meta_len: _Optional[int] = ..., size: _Optional[int] = ..., row_count: _Optional[int] = ..., max_seq: _Optional[int] = ..., last_key: _Optional[bytes] = ...) -> None: ...

class SortedRun(_message.Message):
    __slots__ = ("id", "sst_count")
    ID_FIELD_NUMBER: _ClassVar[int]
    SST_COUNT_FIELD_NUMBER: _ClassVar[int]
    id: int
    sst_count: int
    def __init__(self, id: _Optional[int] = ..., sst_count: _Optional[int] = ...) -> None: ...

class Snapshot(_message.Message):
    __slots__ = ("id", "manifest_id", "snapshot_expire_time_s")
    ID_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_ID_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_EXPIRE_TIME_S_FIELD_NUMBER: _ClassVar[int]
    id: bytes
    manifest_id: int
    snapshot_expire_time_s: int
    def __init__(self, id: _Optional[bytes] = ..., manifest_id: _Optional[int] = ..., snapshot_expire_time_s: _Optional[int] = ...) -> None: ...

class Job(_message.Message):
    __slots__ = ("id", "base", "kind", "compactor_epoch", "started_ms", "expires_ms", "done")
    ID_FIELD_NUMBER: _ClassVar[int]
    BASE_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    COMPACTOR_EPOCH_FIELD_NUMBER: _ClassVar[int]
    STARTED_MS_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_MS_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    id: bytes
    base: int
    kind: JobKind
    compactor_epoch: int
    started_ms: int
    expires_ms: int
    done: bool
    def __init__(self, id: _Optional[bytes] = ..., base: _Optional[int] = ..., kind: _Optional[_Union[JobKind, str]] = ..., compactor_epoch: _Optional[int] = ..., started_ms: _Optional[int] = ..., expires_ms: _Optional[int] = ..., done: _Optional[bool] = ...) -> None: ...

class Transaction(_message.Message):
    __slots__ = ("query_id", "batch_id")
    QUERY_ID_FIELD_NUMBER: _ClassVar[int]
    BATCH_ID_FIELD_NUMBER: _ClassVar[int]
    query_id: str
    batch_id: int
    def __init__(self, query_id: _Optional[str] = ..., batch_id: _Optional[int] = ...) -> None: ...
