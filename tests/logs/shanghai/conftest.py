from collections.abc import Callable

import pytest

from holdfast.disk import Disk
from holdfast.logs.shanghai import ShanghaiLog
from holdfast.testing import SimDisk
from holdfast.testing.shanghai import ShanghaiSubject

Filled = Callable[..., SimDisk]


def open_log(disk: Disk) -> ShanghaiLog:
    return ShanghaiSubject().open(disk)


@pytest.fixture
def disk() -> SimDisk:
    """Four segments of ten entries each, cleanly closed: LSNs 1..40, payloads b'1'..b'40'."""
    disk = SimDisk()
    log = open_log(disk)
    for segment in range(4):
        if segment:
            log.rotate()
        for number in range(10):
            log.append([b"%d" % (10 * segment + number + 1)])
    log.close()
    return disk
