"""A store that a live writer has open is not taken over by those who ask."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.kv.stores import Hand, latest

from holdfast.bucket.memory import MemoryBucket
from holdfast.doors import open_kv
from holdfast.errors import FencedError, LockedError
from holdfast.formats.manifest import Manifest
from holdfast.kv import Kv, holders
from holdfast.kv.manifests import ManifestStore
from holdfast.runtime import Runtime, hostname, process_mark

TTL_MS, SKEW_MS = 600_000, holders.CLOCK_SKEW_MAX_MS


def opened(bucket: MemoryBucket, runtime: Runtime, *, take_over: bool = False) -> Kv:
    return open_kv(
        bucket,
        create=True,
        take_over=take_over,
        flush_ms=None,
        watch_ms=None,
        maintain=False,
        runtime=runtime,
    )


def elsewhere(hand: Hand) -> Runtime:
    """The same clock on another machine."""
    return replace(hand.runtime, hostname=lambda: "db-3", process_mark=lambda pid: f"other {pid}")


def test_a_live_writer_is_named_and_keeps_its_store() -> None:
    bucket, hand = MemoryBucket(), Hand()
    kv = opened(bucket, hand.runtime)
    before = bucket.list("")
    who = rf"written by pid {os.getpid()} on {hostname()} \(.+\) since 2023-11-14T22:13:20Z"
    with pytest.raises(LockedError, match=who) as refused:
        opened(bucket, hand.runtime)
    assert "free when it closes, and at 2023-11-14T23:23:21Z at the latest" in str(refused.value)
    assert bucket.list("") == before
    kv.put(b"a", b"1").result()
    kv.close()
    opened(bucket, hand.runtime).close()  # free at once


def test_the_default_takes_over() -> None:
    bucket, hand = MemoryBucket(), Hand()
    first = opened(bucket, hand.runtime)
    second = opened(bucket, hand.runtime, take_over=True)
    with pytest.raises(FencedError):
        first.put(b"a", b"1").result()
    with pytest.raises(LockedError):
        opened(bucket, hand.runtime)
    with pytest.raises(FencedError):
        first.refresh()  # and leaves no trace of itself as the writer
    with pytest.raises(LockedError):
        opened(bucket, hand.runtime)
    second.close()
    opened(bucket, hand.runtime).close()


def test_a_writer_elsewhere_holds_its_store_until_its_snapshot_has_expired_by_any_clock() -> None:
    bucket, hand = MemoryBucket(), Hand()
    opened(bucket, elsewhere(hand))  # it dies
    for _ in range(2):
        with pytest.raises(LockedError, match="on db-3"):
            opened(bucket, hand.runtime)
        hand.ms += (TTL_MS + SKEW_MS) // 2 - 1000
    hand.ms += 4000
    opened(bucket, hand.runtime).close()


def test_a_writer_that_renews_and_moves_its_lease_keeps_its_store() -> None:
    bucket, hand = MemoryBucket(), Hand()
    kv = opened(bucket, elsewhere(hand))
    for number in range(4):
        kv.put(b"a", b"%d" % number).result()
        kv._lease.move(lambda draft, manifest: None)
        hand.ms += SKEW_MS // 2
        kv.refresh()
        with pytest.raises(LockedError):
            opened(bucket, hand.runtime)
    writer = latest(bucket, hand).writer
    assert writer is not None
    assert writer.lease in {entry.id for entry in latest(bucket, hand).snapshots}
    kv.close()


def test_a_writer_of_an_older_release_is_perhaps_there() -> None:
    bucket, hand = MemoryBucket(), Hand()
    kv = opened(bucket, hand.runtime)

    def forget(manifest_id: int, manifest: Manifest) -> Manifest | None:
        if manifest.writer is None:
            return None
        draft = manifest.edit()
        draft.message.ClearField("writer")
        return draft.freeze()

    ManifestStore(bucket, hand.runtime).update(forget)
    with pytest.raises(LockedError, match="perhaps written by a process of an older release"):
        opened(bucket, hand.runtime)
    kv.close()
    opened(bucket, hand.runtime).close()


def test_a_process_that_was_killed_here_holds_nothing(tmp_path: Path) -> None:
    program = (
        "import holdfast, sys, time\n"
        "kv = holdfast.open_kv(sys.argv[1], create=True)\n"
        "print(kv.epoch, flush=True)\n"
        "time.sleep(600)\n"
    )
    where = str(tmp_path / "kv")
    process = subprocess.Popen(
        [sys.executable, "-c", program, where], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process:
        assert process.stdout.readline() == "1\n"
        with pytest.raises(LockedError, match=f"pid {process.pid}"):
            open_kv(where, take_over=False)
        process.kill()
    open_kv(where, take_over=False).close()


def test_a_mark_is_that_of_one_process() -> None:
    here = process_mark(os.getpid())
    assert here is not None
    assert here == process_mark(os.getpid())
    parent = process_mark(os.getppid())
    assert parent is not None
    assert here != parent
    assert here.rpartition(" ")[0] == parent.rpartition(" ")[0]
    assert process_mark(2**22 + 1) is None
    assert json.dumps(here)  # plain text
