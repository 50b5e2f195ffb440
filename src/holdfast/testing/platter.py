"""What a simulated disk is made of: inodes and directories, each as it is and as it is durably."""

from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class Inode:  # compared and hashed by identity
    live: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    pending: "list[tuple[int, bytes | None]]" = field(default_factory=list)  # None: a new size

    def write(self, offset: int, data: bytes | None) -> None:
        land(self.live, offset, data)
        self.pending.append((offset, data))

    def sync(self) -> None:
        if self.pending:
            durable = bytearray(self.durable)
            for offset, data in self.pending:
                land(durable, offset, data)
            self.durable = bytes(durable)
            self.pending.clear()


@dataclass(slots=True, eq=False)
class Directory:
    live: "dict[str, Inode | Directory]" = field(default_factory=dict)
    durable: "dict[str, Inode | Directory]" = field(default_factory=dict)
    pending: "list[dict[str, Inode | Directory | None]]" = field(default_factory=list)

    def change(self, names: "dict[str, Inode | Directory | None]") -> None:
        rename(self.live, names)
        self.pending.append(names)

    def sync(self) -> None:
        self.durable = dict(self.live)
        self.pending.clear()


def copy_of(directory: Directory, seen: "dict[Inode | Directory, Inode | Directory]") -> Directory:
    """All that is in and below it, unsynced changes included; `seen` is what was copied already."""
    copy = seen[directory] = Directory()

    def twin(node: "Inode | Directory") -> "Inode | Directory":
        if node not in seen:
            if isinstance(node, Directory):
                return copy_of(node, seen)
            seen[node] = Inode(bytearray(node.live), node.durable, list(node.pending))
        return seen[node]

    copy.live = {name: twin(node) for name, node in directory.live.items()}
    copy.durable = {name: twin(node) for name, node in directory.durable.items()}
    copy.pending = [
        {name: node and twin(node) for name, node in change.items()} for change in directory.pending
    ]
    return copy


def all_below(directory: Directory) -> "Iterator[Inode | Directory]":
    """It, and all that is in and below it."""
    yield directory
    for node in directory.live.values():
        if isinstance(node, Directory):
            yield from all_below(node)
        else:
            yield node


def files_in(directory: Directory, prefix: str = "") -> Iterator[tuple[str, bytes]]:
    """Name and content of each file in and below it."""
    for name, node in directory.live.items():
        if isinstance(node, Directory):
            yield from files_in(node, f"{prefix}{name}/")
        else:
            yield prefix + name, bytes(node.live)


def land(content: bytearray, offset: int, data: bytes | None) -> None:
    """Let a write, or a new size, be in `content`."""
    if data is None:
        del content[offset:]
        content.extend(bytes(offset - len(content)))
        return
    if offset > len(content):
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


def rename(
    names: "dict[str, Inode | Directory]", change: "dict[str, Inode | Directory | None]"
) -> None:
    for name, node in change.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node
