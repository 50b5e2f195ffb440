"""The inodes and directories of a simulated disk, each with its live and its durable state."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random


@dataclass(slots=True, eq=False)
class Inode:  # compared and hashed by identity
    """Content is never changed in place: images share it, and it is hashed once for all of them."""

    live: bytes = b""
    durable: bytes = b""
    pending: "list[tuple[int, bytes | None]]" = field(default_factory=list)  # None: a new size
    is_lossy: bool = False  # live is not what durable will be when all that is pending has landed
    allocated: int = 0  # bytes whose blocks the file has, also where they are zero

    def write(self, offset: int, data: bytes | None) -> None:
        self.live = landed(self.live, offset, data)
        self.pending.append((offset, data))

    def sync(self) -> None:
        if self.pending:
            if self.is_lossy:
                for offset, data in self.pending:
                    self.durable = landed(self.durable, offset, data)
            else:
                self.durable = self.live
            self.pending.clear()

    def sync_last(self) -> None:
        """Make only the last write durable; earlier writes may still land after it."""
        if len(self.pending) > 1:
            self.durable = landed(self.durable, *self.pending.pop())
            self.is_lossy = True
        else:
            self.sync()

    def forget_pending(self) -> None:
        """Mark the pages as clean, though they never reached the disk."""
        self.is_lossy = self.is_lossy or bool(self.pending)
        self.pending.clear()


@dataclass(slots=True, eq=False)
class Directory:
    """As long as nothing changes, live and durable are one dict."""

    live: "dict[str, Inode | Directory]" = field(default_factory=dict)
    durable: "dict[str, Inode | Directory]" = field(default_factory=dict)
    pending: "list[dict[str, Inode | Directory | None]]" = field(default_factory=list)
    is_removed: bool = False  # it is open, perhaps, but has no name

    def change(self, names: "dict[str, Inode | Directory | None]") -> None:
        if self.live is self.durable:
            self.live = dict(self.live)
        rename(self.live, names)
        self.pending.append(names)

    def sync(self) -> None:
        self.durable = self.live
        self.pending.clear()


def copy_of(directory: Directory, seen: "dict[Inode | Directory, Inode | Directory]") -> Directory:
    """Copy everything in and below it, unsynced changes included; `seen` has what was copied
    already.
    """
    copy = seen[directory] = Directory()

    def twin(node: "Inode | Directory") -> "Inode | Directory":
        if node not in seen:
            if isinstance(node, Directory):
                return copy_of(node, seen)
            pending = list(node.pending)
            seen[node] = Inode(node.live, node.durable, pending, node.is_lossy, node.allocated)
        return seen[node]

    copy.live = copy.durable = {name: twin(node) for name, node in directory.live.items()}
    if directory.live is not directory.durable:
        copy.durable = {name: twin(node) for name, node in directory.durable.items()}
    copy.pending = [
        {name: node and twin(node) for name, node in change.items()} for change in directory.pending
    ]
    return copy


def all_below(directory: Directory) -> "Iterator[Inode | Directory]":
    """Yield it, and everything in and below it."""
    yield directory
    for node in directory.live.values():
        if isinstance(node, Directory):
            yield from all_below(node)
        else:
            yield node


def files_in(directory: Directory, prefix: str = "") -> Iterator[tuple[str, bytes]]:
    """Yield name and content of each file in and below it."""
    for name, node in directory.live.items():
        if isinstance(node, Directory):
            yield from files_in(node, f"{prefix}{name}/")
        else:
            yield prefix + name, node.live


def image_of(directory: Directory) -> frozenset[tuple[str, bytes]]:
    """Return the contents of a disk, to count images: the pid in LOCK does not count."""
    return frozenset(one for one in files_in(directory) if not one[0].endswith("/LOCK"))


def landed(content: bytes, offset: int, data: bytes | None) -> bytes:
    """Return `content` with a write, or a new size."""
    size = len(content)
    if data is None:
        return content[:offset] if offset <= size else content + bytes(offset - size)
    if offset >= size:
        return content + bytes(offset - size) + data
    return content[:offset] + data + content[offset + len(data) :]


def rename(
    names: "dict[str, Inode | Directory]", change: "dict[str, Inode | Directory | None]"
) -> None:
    for name, node in change.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


def suffer(fate: str, piece: bytes, random: Random) -> bytes:
    if fate == "zero":
        return bytes(len(piece))
    return random.randbytes(len(piece)) if fate == "garbled" else piece
