"""Owners that are forked, moved, interrupted, or lose their lock: one process per scenario.

    python -m holdfast.testing.owners.lives KIND SCENARIO PATH

KIND is one of holdfast.testing.owners.stores.KINDS.  Exit code 0 if every promise held; else a
traceback says which did not.  Each scenario has a process of its own, so that it can fork without
copying another's threads, and so that a deadlock ends in a signal: every wait has a limit.
"""

import argparse
import faulthandler
import os
import sys
from collections.abc import Callable
from pathlib import Path

from holdfast.errors import HoldfastError
from holdfast.testing.owners import forks, places, signals, volumes
from holdfast.testing.owners.stores import KINDS, OwnedStore
from holdfast.testing.owners.tools import LIMIT_S

Scenario = Callable[[OwnedStore, Path], None]


def knock(kind: OwnedStore, path: Path) -> None:
    """Try to become the owner, and print the result."""
    try:
        kind.open(path).close()
    except HoldfastError as error:
        print(f"{type(error).__name__}: {error}")
    else:
        print("opened")


def hold(kind: OwnedStore, path: Path) -> None:
    """Own the store until standard input ends."""
    store = kind.open(path)
    kind.write(store, 1)
    print("held", flush=True)
    sys.stdin.read()
    store.close()


def _by_name(*scenarios: Scenario) -> dict[str, Scenario]:
    return {scenario.__name__: scenario for scenario in scenarios}


EVERYWHERE = _by_name(  # on a bucket too
    forks.a_forked_child_is_refused,
    forks.a_child_reads_as_a_guest_and_owns_what_is_free,
    forks.forks_among_writing_threads,
    forks.a_child_that_outlives_its_parent_keeps_no_lock,
    forks.multiprocessing_in_every_way,
    forks.a_program_with_our_descriptors_keeps_no_lock,
    signals.ctrl_c_at_any_moment,
)
IN_DIRECTORIES = _by_name(
    places.a_second_owner_is_refused_until_the_first_is_gone,
    places.the_directory_is_moved,
    places.the_lock_is_removed,
    places.the_lock_is_replaced,
    places.the_directory_is_removed,
    signals.a_signal_handler_writes,
    places.something_else_in_the_place_of_each_file,
)
ON_VOLUMES = _by_name(  # on a bucket too
    volumes.readers_where_nothing_can_be_written,
    volumes.a_full_disk,
)
ON_OWNED_VOLUMES = _by_name(volumes.a_file_system_that_becomes_read_only)
SCENARIOS = {
    **_by_name(knock, hold),
    **EVERYWHERE,
    **IN_DIRECTORIES,
    **ON_VOLUMES,
    **ON_OWNED_VOLUMES,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("scenario", choices=SCENARIOS)
    parser.add_argument("path", type=Path)
    options = parser.parse_args()
    faulthandler.dump_traceback_later(2 * LIMIT_S, exit=True)  # a deadlock prints its stack
    SCENARIOS[options.scenario](KINDS[options.kind](), options.path.absolute())
    sys.stdout.flush()
    os._exit(0)  # a plain end would be exit code 130 if an extension ever saw a KeyboardInterrupt


if __name__ == "__main__":
    main()
