"""The tests that every store must pass: create, open, missing, closed, poisoned and full.

    class TestMine(DiskStoreContract):
        kind = "shanghai"

`kind` is one of holdfast.testing.owners.stores.KINDS.  Forks, moved directories, removed locks and
second owners are scenarios of holdfast.testing.owners, which this contract inherits.
"""

import errno
from collections.abc import Callable, Iterator
from functools import partial
from inspect import Parameter, isgenerator, signature
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import (
    ClosedError,
    DiskFullError,
    ExistsError,
    HoldfastError,
    NotFoundError,
    PoisonedError,
)
from holdfast.metrics import Metric, prometheus_text
from holdfast.ownership import Ownership
from holdfast.posix import Posix
from holdfast.testing.owners.contract import ForkContract, OwnerContract
from holdfast.testing.owners.stores import KINDS, OwnedStore

_STAY_READABLE = {"close", "damage", "recovered"}


class StoreContract(ForkContract):
    """For every store, on a bucket too."""

    @property
    def store(self) -> OwnedStore:
        return KINDS[self.kind]()

    # Create, open, read

    def test_create_makes_a_store_that_open_and_read_find(self, tmp_path: Path) -> None:
        made = self.made(tmp_path / "store", 1, 2)
        assert self.store.scan(made) == [1, 2]
        made.close()
        with self.store.own(str(tmp_path / "store")) as owner:  # a string
            self.store.write(owner, 3)
        with self.store.look(_PathLike(tmp_path / "store")) as reader:  # any PathLike
            assert self.store.scan(reader) == [1, 2, 3]

    def test_create_refuses_a_store_that_exists(self, tmp_path: Path) -> None:
        self.made(tmp_path / "store", 1).close()
        with pytest.raises(ExistsError) as raised:
            self.store.create(tmp_path / "store")
        assert isinstance(raised.value, FileExistsError)
        assert self.store.read(tmp_path / "store") == [1]

    def test_a_directory_that_holds_something_else_is_left_alone(self, tmp_path: Path) -> None:
        (tmp_path / "notes.txt").write_text("not a store")
        for create in (self.store.create, partial(self.store.own, create=True)):
            with pytest.raises((ExistsError, NotFoundError)):
                create(tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]

    def test_a_missing_store_is_not_found_and_not_created(self, tmp_path: Path) -> None:
        for act in (self.store.own, self.store.look):
            with pytest.raises(NotFoundError) as raised:
                act(tmp_path / "nowhere")
            assert isinstance(raised.value, FileNotFoundError)
            assert not (tmp_path / "nowhere").exists()

    def test_open_creates_where_it_is_asked_to(self, tmp_path: Path) -> None:
        for number in (1, 2):
            with self.store.own(tmp_path / "store", create=True) as owner:
                self.store.write(owner, number)
        assert self.store.read(tmp_path / "store") == [1, 2]

    def test_an_unknown_option_is_refused_by_name(self, tmp_path: Path) -> None:
        with pytest.raises(TypeError, match="nonesuch"):
            self.store.create(tmp_path / "store", nonesuch=1)
        self.made(tmp_path / "other", 1).close()
        for act in (self.store.own, self.store.look):
            with pytest.raises(TypeError, match="nonesuch"):
                act(tmp_path / "other", nonesuch=1)

    # Handles

    def test_every_call_after_close_is_refused(self, tmp_path: Path) -> None:
        owner = self.made(tmp_path / "store", 1)
        reader = self.store.look(tmp_path / "store")
        for handle in (reader, owner):
            handle.close()
            handle.close()
            for name, call in _calls(handle, self.store):
                with pytest.raises(ClosedError):
                    _consume(call())
                    pytest.fail(f"{type(handle).__name__}.{name} answers after close")
            assert "closed" in repr(handle)
            assert handle._repr_html_()

    def test_an_open_iterator_is_refused_after_close(self, tmp_path: Path) -> None:
        owner = self.made(tmp_path / "store", 1, 2)
        for handle in (self.store.look(tmp_path / "store"), owner):
            iterator = self.store.iterate(handle)
            handle.close()
            if iterator is not None:
                with pytest.raises(ClosedError):
                    next(iterator)

    def test_a_with_block_closes(self, tmp_path: Path) -> None:
        with self.made(tmp_path / "store", 1) as owner:
            pass
        with pytest.raises(ClosedError):
            self.store.scan(owner)

    def test_every_handle_reports_on_itself(self, tmp_path: Path) -> None:
        with self.made(tmp_path / "store", 1) as owner, self.store.look(tmp_path / "store") as look:
            for handle in (owner, look):
                assert type(handle).__name__ in repr(handle)
                assert "<table>" in handle._repr_html_()
                assert handle.status() is not None
                assert handle.verify() is not None
                assert not handle.damage
                assert all(isinstance(metric, Metric) for metric in handle.metrics())
            assert isinstance(owner.recovered, tuple)
            kinds = {metric.kind for metric in owner.metrics()}
            assert {"counter", "gauge", "histogram"} <= kinds, (
                "an owner counts, and measures its commits"
            )
            for line in prometheus_text(owner.metrics(), "holdfast", store="x").splitlines():
                assert line.startswith("# ") or float(line.rpartition(" ")[2]) >= 0

    def test_ranges_are_half_open(self, tmp_path: Path) -> None:
        with self.made(tmp_path / "store", 1, 2, 3) as owner:
            for start in range(1, 4):
                for stop in range(start, 5):
                    assert self.store.between(owner, start, stop) == [*range(start, min(stop, 4))]

    def made(self, path: Path, *numbers: int) -> Any:
        """Create a store that holds numbers, and return its owner."""
        owner = self.store.create(path)
        self.store.write(owner, *numbers)
        return owner


class DiskStoreContract(StoreContract, OwnerContract):
    """For every store in a directory."""

    def test_a_failed_sync_refuses_writes_and_keeps_what_was_acknowledged(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        owner = self.made(tmp_path / "store", 1)
        with monkeypatch.context() as patch:
            _fail_syncs(patch, errno.EIO)
            with pytest.raises(OSError):
                self.store.write(owner, 2)
        with pytest.raises(PoisonedError):
            self.store.write(owner, 3)
        assert self.store.scan(owner) == [1]
        owner.close()
        with self.store.own(tmp_path / "store") as owner:
            assert self.store.scan(owner)[:1] == [1]
            self.store.write(owner, 4)

    def test_after_a_failed_check_of_the_owner_no_later_write_is_taken(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Else of two submitted writes the second could be durable without the first."""
        owner = self.made(tmp_path / "store", 1)
        with monkeypatch.context() as patch:

            def fail(self: Ownership) -> None:
                raise OSError(errno.EIO, "planted")

            patch.setattr(Ownership, "check", fail)
            with pytest.raises(OSError):
                self.store.write(owner, 2)
        with pytest.raises(PoisonedError):
            self.store.write(owner, 3)
        assert self.store.scan(owner) == [1]
        owner.close()

    def test_a_full_disk_is_reported_and_what_was_acknowledged_can_be_read(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        owner = self.made(tmp_path / "store", 1)
        with monkeypatch.context() as patch:
            _fail_syncs(patch, errno.ENOSPC)
            with pytest.raises(DiskFullError):
                self.store.write(owner, 2)
            assert self.store.scan(owner) == [1]
        owner.close()
        assert self.store.read(tmp_path / "store")[:1] == [1]

    def test_an_owner_that_was_refused_leaves_no_trace(self, tmp_path: Path) -> None:
        owner = self.made(tmp_path / "store", 1)
        with pytest.raises(HoldfastError):
            self.store.own(tmp_path / "store")
        self.store.write(owner, 2)
        assert self.store.scan(owner) == [1, 2]
        owner.close()


class _PathLike:
    def __init__(self, path: Path) -> None:
        self._path = str(path)

    def __fspath__(self) -> str:
        return self._path


def _calls(handle: Any, store: OwnedStore) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield every public method and property of a handle as a call."""
    skipped = _STAY_READABLE | store.internal
    for name in sorted({*dir(type(handle)), *vars(handle)}):
        if name.startswith("_") or name in skipped:
            continue
        if isinstance(getattr(type(handle), name, None), property):
            yield name, partial(getattr, handle, name)
        elif callable(method := getattr(handle, name)) and hasattr(method, "__self__"):
            yield name, _with_arguments(method, store)


def _with_arguments(method: Callable[..., object], store: OwnedStore) -> Callable[[], object]:
    needed = [
        parameter.name
        for parameter in signature(method).parameters.values()
        if parameter.default is Parameter.empty
        and parameter.kind not in (Parameter.VAR_KEYWORD, Parameter.VAR_POSITIONAL)
    ]
    if unknown := [name for name in needed if name not in store.arguments]:
        pytest.fail(f"add {unknown} of {method.__qualname__} to `arguments` of {store.name}")
    return partial(method, **{name: store.arguments[name] for name in needed})


def _consume(result: object) -> None:
    """Read a generator, which raises when it is first read."""
    if isgenerator(result):
        next(result)


def _fail_syncs(patch: pytest.MonkeyPatch, code: int) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise OSError(code, "planted")

    write = Posix.pwrite

    def pwrite(self: Posix, fd: int, data: Any, offset: int, *, sync: bool) -> int:
        if sync:
            fail()
        return write(self, fd, data, offset, sync=sync)

    patch.setattr(Posix, "pwrite", pwrite)
    patch.setattr(Posix, "fdatasync", fail)
