"""The state file: a Raft server's term and vote, durable.  The page: docs/formats/state_file.md

Records are appended, and the last value of each property counts.  At 512 KiB the file is rolled: a
new one with one complete record replaces it, and the old one is kept under a dated name.

A record has no checksum, and a torn one can look complete with a wrong value in it: a vote that was
never cast.  So each record is written to a redo file first.  It stays there: it says what the state
file holds, byte for byte, and a file that holds less is damaged.  A last record that is torn, cut
off or changed is written again.  The name of the redo file is that of a temporary file: the
original removes it when it opens the state file, and so it never undoes what that program wrote.

Invariant: a redo that binds is removed, durably, before the state file is replaced.
"""

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from isal.isal_zlib import crc32

from holdfast.cuts import keep_aside
from holdfast.disk import Disk, Lock
from holdfast.errors import ChangedError, CorruptError
from holdfast.formats import state_file as fmt
from holdfast.handle import Closing, Handle
from holdfast.logs.file_log.directory import STATE
from holdfast.logs.file_log.history import Stamps, replace, sweep
from holdfast.logs.log import Damage
from holdfast.runtime import Runtime

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
    """What a state file holds, what its redo file says, and whether an append must be repeated."""

    data: bytes
    states: fmt.States
    redo: fmt.Redo | None = None
    repeats: bool = False  # the record of the redo: it is in `data`, but not in the file
    cut: bytes = b""  # the bytes in its place


def read_state(
    disk: Disk, name: str = STATE, defaults: Mapping[str, Any] = RAFT_STATE
) -> dict[str, Any]:
    """Read the properties in a state file, without owning it; empty if there is none."""
    for _ in range(_LOOKS_MAX):
        data, redo = _read(disk, name), _read(disk, redo_name(name))
        try:
            loaded = _judge(name, data, redo, defaults)
        except CorruptError:
            if _read(disk, name) == data:
                raise
            continue  # the owner was writing to it
        is_quiet = loaded is None or (not loaded.repeats and loaded.states.flaw is None)
        if is_quiet or _read(disk, name) == data:
            return {} if loaded is None else _values(loaded, defaults)
    raise ChangedError(f"{name} changed during {_LOOKS_MAX} looks at it; try again")


def state_damage(disk: Disk) -> Damage | None:
    """Return what is wrong with the state file of a log."""
    try:
        read_state(disk)
    except CorruptError as error:
        return Damage(error.where, error.offset, 0, 0, error.why)
    return None


def redo_name(name: str) -> str:
    return f"{name}.tmp-0-redo"


class StateFile(Closing):
    """The owner of a state file.  `defaults` name the properties, in order.

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
        lock: Lock | None = None,
        runtime: Runtime | None = None,
    ) -> None:
        """Open the file, and create it if it never existed.

        CorruptError if it is damaged, or holds less than it did.  `lock` is that of the log's
        owner; without it, the directory is locked here.
        """
        self._disk, self._name, self._defaults = disk, name, dict(defaults)
        self._stamps = Stamps(runtime or Runtime())
        self._handle = Handle(f"the state file {disk}/{name}")
        self.recovered: tuple[str, ...] = ()  # what recovery did
        self._is_borrowed = lock is not None
        self._lock = lock or disk.lock()
        try:
            self._open()
        except BaseException:
            self._release()
            raise

    @property
    def values(self) -> dict[str, Any]:
        self._handle.check_read()
        return dict(self._values)

    def __getitem__(self, name: str) -> Any:
        self._handle.check_read()
        return self._values[name]

    @property
    def will_roll(self) -> bool:
        """Whether the next update begins a new file."""
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
        """Begin a new file, with all properties in one record; keep the old one."""
        values = self._merged(changes or {})
        self._guarded(lambda: self._roll(values))

    def close(self) -> None:
        """Close the files.  The redo file stays, as it says what was closed.  Twice is fine."""
        self._handle.close()
        try:
            self._redo.close()
        finally:
            self._file.close()
            self._release()

    def _release(self) -> None:
        if not self._is_borrowed:
            self._lock.release()

    def _open(self) -> None:
        sweep(self._disk, self._name, redo_name(self._name))
        self._sync(redo_name(self._name))
        self._sync(self._name)
        loaded = self._load()
        if loaded is None:
            self._disk.create(self._name, b"")  # durable: after a power cut there is a file
            loaded = self._load()
        assert loaded is not None, "just created"
        self._file = self._disk.open(self._name, writable=True)
        if loaded.redo is not None and loaded.repeats:
            self._repeat(loaded.redo, loaded.cut)
        self._values = _values(loaded, self._defaults)
        self._size, self._crc = len(loaded.data), int(crc32(loaded.data))
        self._is_torn = loaded.states.flaw is not None
        if loaded.states.flaw is not None:
            flaw = loaded.states.flaw
            self._note(f"ignored a torn record at byte {flaw.offset} ({flaw.why})")
        if loaded.redo is None or not loaded.redo.binds or loaded.redo.stop != self._size:
            self._begin_redo(fmt.Redo(self._size, self._crc, b""))
        else:
            self._redo = self._disk.open(redo_name(self._name), writable=True)

    def _sync(self, name: str) -> None:
        """Sync a file, if there is one, and drop it from the cache."""
        if name in self._disk.list():
            with closing(self._disk.open(name, writable=True)) as file:
                file.sync(forget_from=0)

    def _load(self) -> _Loaded | None:
        data, redo = _read(self._disk, self._name), _read(self._disk, redo_name(self._name))
        return _judge(self._name, data, redo, self._defaults)

    def _repeat(self, redo: fmt.Redo, cut: bytes) -> None:
        done = "wrote its last record again"
        if any(cut):
            kept = keep_aside(self._disk, self._name, redo.offset, cut)
            done += f"; its previous bytes are kept in {kept}"
        self._file.write_at(redo.offset, redo.record)
        self._file.resize(redo.stop)
        self._file.sync()
        self._note(done)

    def _note(self, done: str) -> None:
        self.recovered = (*self.recovered, f"{self._name}: {done}")

    def _begin_redo(self, redo: fmt.Redo) -> None:
        """Create the redo file, durably: from now on the state file holds what it says."""
        self._disk.create(redo_name(self._name), fmt.encode_redo(redo), replace=True)
        self._redo = self._disk.open(redo_name(self._name), writable=True)

    def _merged(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        self._handle.check_write()
        if unknown := [key for key in changes if key not in self._defaults]:
            raise ValueError(
                f"unknown property {unknown[0]!r}; expected {', '.join(self._defaults)}"
            )
        merged = {**self._values, **changes}
        fmt.encode_record(merged)  # ValueError before anything is written
        return merged

    def _append(self, record: bytes) -> None:
        redo = fmt.encode_redo(fmt.Redo(self._size, self._crc, record))
        self._redo.write_at(0, redo, sync=True)
        self._file.write_at(self._size, record, sync=True)
        self._size += len(record)
        self._crc = int(crc32(record, self._crc))

    def _roll(self, values: dict[str, Any]) -> None:
        record = fmt.encode_record(values)
        temporary = self._stamps.temporary(self._name)
        self._disk.create(temporary, record, replace=True)
        self._redo.close()
        self._disk.remove(redo_name(self._name))  # before what it says is replaced
        old = self._stamps.history(self._name, self._disk.list().__contains__)
        replace(self._disk, temporary, self._name, old)
        self._file.close()
        self._file = self._disk.open(self._name, writable=True)
        self._begin_redo(fmt.Redo(0, 0, record))
        self._size, self._crc, self._is_torn = len(record), int(crc32(record)), False
        self._values = values

    def _guarded(self, step: Callable[[], None]) -> None:
        self._lock.check()
        try:
            step()
        except BaseException as error:
            self._handle.poison("an earlier update", error)
            raise


def _judge(
    name: str, data: bytes | None, redo_data: bytes | None, keys: Mapping[str, Any]
) -> _Loaded | None:
    """Judge copies of a state file and of its redo file."""
    redo = fmt.decode_redo(redo_data or b"")
    if redo is not None and redo.binds:
        _refuse_less(name, data, redo)
    if data is None:
        return None
    if redo is not None and _repeats(data, redo):
        whole = data[: redo.offset] + redo.record
        return _Loaded(whole, fmt.decode_records(whole), redo, True, data[redo.offset :])
    states = fmt.decode_records(data)
    if states.flaw is not None:
        rest = data[states.stop :]
        # A crash leaves zeros, garbage or a part of one record of an append.
        if fmt.counts_keys(rest, keys) > (1 if states.is_torn else 0):
            raise CorruptError(name, states.flaw.offset, f"{states.flaw.why}; records follow")
    return _Loaded(data, states, redo)


def _refuse_less(name: str, data: bytes | None, redo: fmt.Redo) -> None:
    """Raise CorruptError unless the file holds all that was durable in it.

    Its last record may be missing or changed: the redo file has it too.
    """
    if data is None:
        raise CorruptError(name, 0, f"missing; {_advice(name)}")
    before, tail = data[: redo.offset], data[redo.offset :]
    if len(before) < redo.offset:
        why = f"it ends here, and held {redo.stop} bytes"
        raise CorruptError(name, len(before), f"{why}; {_advice(name)}")
    if crc32(before) != redo.prefix_crc32:
        why = f"checksum mismatch in its first {redo.offset} bytes"
        raise CorruptError(name, 0, f"{why}; {_advice(name)}")
    if len(tail) > len(redo.record) and not tail.startswith(redo.record):
        raise CorruptError(name, redo.offset, f"its last record has changed; {_advice(name)}")


def _advice(name: str) -> str:
    return (
        f"a server that goes on without it may vote twice: restore {name}, or remove this server "
        f"from its cluster; to give the state up, remove {redo_name(name)} too"
    )


def _repeats(data: bytes, redo: fmt.Redo) -> bool:
    """Return whether the redo has a record that the file has not, or only in part."""
    if redo.binds:  # it was compared already
        return not data[redo.offset :].startswith(redo.record)
    if not redo.offset < len(data) <= redo.stop or data[redo.offset :] == redo.record:
        return False
    return bool(crc32(data[: redo.offset]) == redo.prefix_crc32)


def _read(disk: Disk, name: str) -> bytes | None:
    try:
        file = disk.open(name)
    except FileNotFoundError:
        return None
    with closing(file):
        return file.read_at(0, file.size())  # a copy: the owner may cut the file


def _values(loaded: _Loaded, defaults: Mapping[str, Any]) -> dict[str, Any]:
    values = dict(defaults)
    for record in loaded.states.records:
        values.update({key: value for key, value in record.items() if key in defaults})
    return values
