"""The same operations by us and by another program: random sequences, compared step by step."""

import importlib.util
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from tests.interop import test_bolt as bbolt
from tests.interop.test_zmq_raft import FROZEN_MS, Twins
from tests.interop.zmq_raft.duel import Duel
from tests.interop.zmq_raft.node import Node, find_package
from tests.interop.zmq_raft.turns import Turns

from holdfast.doors import open_kv

KEYS = 30


def no_zmq_raft() -> str:
    """Return why zmq-raft cannot be run; empty if it can."""
    return find_package()[1]


def no_slatedb() -> str:
    """Return why SlateDB cannot be run.  The benchmarks drive it, beside other stores."""
    needed = "slatedb", "rocksdict", "lmdb"
    absent = [name for name in needed if importlib.util.find_spec(name) is None]
    return f"no {absent[0]} here: pip install {' '.join(absent)}" if absent else ""


def zmq_raft_turns(seed: int, place: Path) -> None:
    """Both programs write one log in turns."""
    _with_node(lambda node: Turns(node, place / "raft", seed).run())


def zmq_raft_twins(seed: int, place: Path) -> None:
    """Both programs do the same in directories of their own, byte by byte."""
    _with_node(lambda node: Twins(node, place, seed).run(), str(FROZEN_MS))


def zmq_raft_duel(seed: int, place: Path) -> None:
    """Both write one directory in turns: requests that expire, the state, kills of zmq-raft."""
    package, why = find_package()
    assert package is not None, why
    Duel(package, place / "raft", seed).run()


def _with_node(run: Callable[[Node], None], *arguments: str) -> None:
    package, why = find_package()
    assert package is not None, why
    node = Node(package, *arguments)
    try:
        run(node)
    finally:
        node.stop()


def bbolt_turns(seed: int, place: Path) -> None:
    """The real bbolt reads, checks and changes our files, and we its."""
    program = bbolt.build(place / "go")
    for number, test in enumerate(
        (
            bbolt.test_both_write_one_file_in_turns,
            bbolt.test_bbolt_reads_our_files_and_finds_no_errors,
        )
    ):
        here = place / str(number)
        here.mkdir()
        test(program, here, seed)


def slatedb_twins(seed: int, place: Path) -> None:
    """Both stores take the same writes, and are closed and opened; they show the same rows."""
    from campaign.slatedb import SlateDb  # it may not be installed

    random, model = Random(f"slatedb {seed}"), dict[bytes, bytes]()
    for _ in range(3):
        theirs = SlateDb(place / "theirs")
        with open_kv(place / "ours", create=True, flush_ms=5) as ours:
            for _ in range(random.randint(1, 8)):
                _step(random, model, ours, theirs)
            assert dict(ours.items()) == model
            assert theirs.items() == model
        theirs.close()
    shutil.rmtree(place / "theirs")


def _step(random: Random, model: dict[bytes, bytes], ours: Any, theirs: Any) -> None:
    key = b"%03d" % random.randrange(KEYS)
    if random.random() < 0.3:
        ours.delete(key).result()
        theirs.delete(key)
        model.pop(key, None)
        return
    keys = {key, *(b"%03d" % random.randrange(KEYS) for _ in range(random.choice((0, 0, 5))))}
    rows = {key: random.randbytes(random.choice((0, 1, 20, 5000))) for key in sorted(keys)}
    ours.write(rows).result()
    theirs.put(list(rows.items()))
    model |= rows
