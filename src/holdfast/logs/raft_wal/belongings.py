"""Own a log with what another raft-wal log had besides its entries: a codec and stable keys."""

from typing import Any

from holdfast.disk import Disk
from holdfast.errors import CorruptError
from holdfast.logs.raft_wal.writer import RaftWal


def open_with(disk: Disk, belongings: dict[str, Any], **options: Any) -> RaftWal:
    """Own a log with this codec and these stable keys, whatever stable keys it had before."""
    try:
        codec = int(options.pop("codec", belongings["codec"]))
        wanted = {bytes.fromhex(k): bytes.fromhex(v) for k, v in belongings["stable"].items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptError("belongings", 0, f"not those of a raft-wal log: {error!r}") from error
    log = RaftWal(disk, codec=codec, **options)
    try:
        had = log.stable
        for key in had.keys() | wanted.keys():
            if had.get(key) != wanted.get(key):
                log.set(key, wanted.get(key))
    except BaseException:
        log.close()
        raise
    return log
