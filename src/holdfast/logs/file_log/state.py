"""A few properties kept durably: a Raft server's term and vote.  docs/formats/state_file.md

Records are appended, and the last value of each property counts.  At 512 KiB the file is rolled: a
new one with one whole record takes its place, and the old one is kept under a dated name.

A record has no checksum, and one that is torn can look whole with a wrong value in it: a vote that
was never cast.  So each is written to a file of ours first, which goes when this closes.  By its
name the original takes it for a forgotten one and removes it: it undoes nothing of that program's.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from isal.isal_zlib import crc32

from holdfast import runtime
from holdfast.cuts import keep_aside
from holdfast.disk import Disk, File, Lock
from holdfast.errors import ChangedError, CorruptError, HoldfastError, PoisonedError
from holdfast.formats import state_file as fmt
from holdfast.logs.file_log.directory import STATE
from holdfast.logs.file_log.history import Stamps, replace, sweep

_LOOKS_MAX = 100

RAFT_STATE: dict[str, Any] = {
    "currentTerm": 0,
    "votedFor": None,
    "peers": [],
    "peersUpdateRequest": None,
    "peersIndex": None,
}


@dataclass(frozen=True, slots=True)
class _Loaded:
    """What a state file holds, and what of it must be put right."""

    data: bytes
    states: fmt.States
    redo: fmt.Redo | None = None  # an append to do again
    cut: bytes = b""  # what stands in its place


def read_state(
    disk: Disk, name: str = STATE, defaults: Mapping[str, Any] = RAFT_STATE
) -> dict[str, Any]:
    """The properties in a state file, without owning it; empty if there is none."""
    for _ in range(_LOOKS_MAX):
        data, redo = _read(disk, name), _read(disk, redo_name(name))
        try:
            loaded = _judge(name, data, redo, defaults)
        except CorruptError:
            if _read(disk, name) == data:
                raise
            continue  # the owner was writing to it
        is_quiet = loaded is None or (loaded.redo is None and loaded.states.flaw is None)
        if is_quiet or _read(disk, name) == data:
            return {} if loaded is None else _values(loaded, defaults)
    raise ChangedError(f"{name} changed during {_LOOKS_MAX} looks at it; try again")


def redo_name(name: str) -> str:
    return f"{name}.tmp-0-redo"


class StateFile(runtime.Closing):
    """The owner of a state file.  `defaults` say which properties there are, and in which order.

    >>> from holdfast.disk import OsDisk
    >>> with StateFile(OsDisk(directory)) as state:
    ...     state.update({"currentTerm": 7, "votedFor": "id1"})  # durable when this returns
    ...     state["currentTerm"]
    7
    """

    def __init__(
        self,
        disk: Disk,
        name: str = STATE,
        defaults: Mapping[str, Any] = RAFT_STATE,
        *,
        stamps: Stamps | None = None,
        lock: Lock | None = None,
    ) -> None:
        """`lock` is that of the log's owner; without it, the directory is locked here."""
        self._disk, self._name, self._stamps = disk, name, stamps or Stamps()
        self._defaults = dict(defaults)
        self._refusal: str | None = None
        self._redo: File | None = None
        self.mended: tuple[str, ...] = ()  # what recovery did
        self._is_borrowed = lock is not None
        self._lock = lock or disk.lock()
        try:
            self._open()
        except BaseException:
            self._release()
            raise

    @property
    def values(self) -> dict[str, Any]:
        return dict(self._values)

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    @property
    def will_roll(self) -> bool:
        """Does the next update begin a new file?"""
        return self._is_torn or self._size >= fmt.ROLL_SIZE

    def update(self, changes: Mapping[str, Any]) -> None:
        """Set some properties.  Durable, all of them, when this returns."""
        values = self._merged(changes)
        if self.will_roll:
            return self._guarded(lambda: self._roll(values))
        record = fmt.encode_record({key: values[key] for key in self._defaults if key in changes})
        self._guarded(lambda: self._append(record))
        self._values = values
        return None

    def rotate(self, changes: Mapping[str, Any] | None = None) -> None:
        """Begin a new file, with all properties in one record; the old one is kept."""
        values = self._merged(changes or {})
        self._guarded(lambda: self._roll(values))

    def close(self) -> None:
        is_sound = self._refusal is None and self._lock.is_ours
        self._refusal = "the state file is closed"
        try:
            if self._redo is not None:
                self._redo.close()
                if is_sound:
                    self._disk.remove(redo_name(self._name))
                self._redo = None
        finally:
            self._file.close()
            self._release()

    def _release(self) -> None:
        if not self._is_borrowed:
            self._lock.release()

    def _open(self) -> None:
        sweep(self._disk, self._name, redo_name(self._name))
        if self._name not in self._disk.list():
            self._disk.create(self._name, b"")  # durable, so that a power cut leaves some file
        self._file = self._disk.open(self._name, writable=True)
        self._file.sync(forget_from=0)
        loaded = _load(self._disk, self._name, self._defaults)
        assert loaded is not None, "just made"
        if loaded.redo is not None:
            self._do_again(loaded.redo, loaded.cut)
            loaded = _load(self._disk, self._name, self._defaults)
            assert loaded is not None, "just written"
        self._values = _values(loaded, self._defaults)
        self._size, self._crc = len(loaded.data), int(crc32(loaded.data))
        self._is_torn = loaded.states.flaw is not None

    def _do_again(self, redo: fmt.Redo, cut: bytes) -> None:
        told = f"{self._name}: a torn record is written again"
        if any(cut):
            told += f"; what stood there is kept in {self._keep(redo, cut)}"
        self._file.write_at(redo.offset, redo.record)
        self._file.resize(redo.offset + len(redo.record))
        self._file.sync()
        self.mended = (*self.mended, told)

    def _keep(self, redo: fmt.Redo, cut: bytes) -> str:
        return keep_aside(self._disk, self._name, redo.offset, cut)

    def _merged(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        if strange := [key for key in changes if key not in self._defaults]:
            raise ValueError(f"no property {strange[0]!r}; there are {', '.join(self._defaults)}")
        merged = {**self._values, **changes}
        fmt.encode_record(merged)  # refused before anything is done
        return merged

    def _append(self, record: bytes) -> None:
        if self._redo is None:
            self._disk.create(redo_name(self._name), b"", replace=True)
            self._redo = self._disk.open(redo_name(self._name), writable=True)
        redo = fmt.encode_redo(fmt.Redo(self._size, self._crc, record))
        self._redo.write_at(0, redo, sync=True)
        self._file.write_at(self._size, record, sync=True)
        self._size += len(record)
        self._crc = int(crc32(record, self._crc))

    def _roll(self, values: dict[str, Any]) -> None:
        record = fmt.encode_record(values)
        temporary = self._stamps.temporary(self._name)
        self._disk.create(temporary, record, replace=True)
        old = self._stamps.history(self._name, self._disk.list().__contains__)
        replace(self._disk, temporary, self._name, old)
        self._file.close()
        self._file = self._disk.open(self._name, writable=True)
        self._size, self._crc, self._is_torn = len(record), int(crc32(record)), False
        self._values = values

    def _guarded(self, step: Any) -> None:
        if self._refusal is not None:
            raise (HoldfastError if "closed" in self._refusal else PoisonedError)(self._refusal)
        self._lock.check()
        try:
            step()
        except BaseException as error:
            self._refusal = f"an earlier update failed ({error!r}); reopen the state file"
            raise


def _load(disk: Disk, name: str, keys: Mapping[str, Any]) -> _Loaded | None:
    return _judge(name, _read(disk, name), _read(disk, redo_name(name)), keys)


def _judge(
    name: str, data: bytes | None, redo_data: bytes | None, keys: Mapping[str, Any]
) -> _Loaded | None:
    """What a state file holds, by copies of it and of the append that may be under way."""
    if data is None:
        return None
    redo = fmt.decode_redo(redo_data or b"")
    if redo is not None and redo.offset < len(data) <= redo.offset + len(redo.record):
        before, tail = data[: redo.offset], data[redo.offset :]
        if crc32(before) == redo.prefix_crc32 and tail != redo.record:
            states = fmt.decode_records(before + redo.record)
            return _Loaded(before + redo.record, states, redo, tail)
    states = fmt.decode_records(data)
    if states.flaw is not None:
        rest = data[states.stop :]
        # Zeros, garbage or a part of one record are what a crash leaves of an append.
        if fmt.counts_keys(rest, keys) > (1 if states.is_torn else 0):
            raise CorruptError(name, states.flaw.offset, f"{states.flaw.why}; records are behind")
    return _Loaded(data, states)


def _read(disk: Disk, name: str) -> bytes | None:
    try:
        file = disk.open(name)
    except FileNotFoundError:
        return None
    try:
        return file.read_at(0, file.size())  # a copy: the owner may cut the file
    finally:
        file.close()


def _values(loaded: _Loaded, defaults: Mapping[str, Any]) -> dict[str, Any]:
    values = dict(defaults)
    for record in loaded.states.records:
        values.update({key: value for key, value in record.items() if key in defaults})
    return values
