"""What a raft-wal log has besides its entries, as JSON: its codec and its stable keys.

A conversion takes them along, so that a Raft server's term and vote are not forgotten on the way.
"""

from typing import Any

from holdfast.disk import Disk
from holdfast.errors import CorruptError
from holdfast.logs.raft_wal.guest import RaftWalGuest
from holdfast.logs.raft_wal.log import RaftWal


def belongings_of(guest: RaftWalGuest) -> dict[str, Any]:
    stable = {key.hex(): value.hex() for key, value in sorted(guest.stable.items())}
    return {"codec": guest.codec, "stable": stable}


def open_with(disk: Disk, belongings: dict[str, Any], **options: Any) -> RaftWal:
    """Own a log that has these, whatever stable keys it had before."""
    try:
        codec = int(belongings["codec"])
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
