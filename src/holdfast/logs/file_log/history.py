"""Names for what is replaced and kept: of snapshots, states and whole logs, as the original has it.

snap-2024-01-02-030405-6780     when, to the millisecond, and a number in base 36 behind it
snap.tmp-4242-1                 a file that is being made, and by which process
"""

import re
from collections.abc import Callable

from holdfast import runtime
from holdfast.disk import Disk
from holdfast.formats.token_file import Meta

KEPT_MAX = 60  # of old snapshots and states

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_DATE = r"-\d{4}-\d\d-\d\d-\d{6}-\d{3}[0-9a-z]+"


class Stamps:
    """Dates and numbers for names.  One for all that a log keeps, so that no two are alike."""

    def __init__(
        self,
        now_ms: Callable[[], int] = runtime.now_ms,
        hostname: str | None = None,
        process_id: int | None = None,
    ) -> None:
        self.now_ms = now_ms
        self.hostname = runtime.hostname() if hostname is None else hostname
        self.process_id = runtime.process_id() if process_id is None else process_id
        self._last_ms, self._number, self._temporary = -1, 0, 0

    def meta(self) -> Meta:
        return Meta(iso_time(self.now_ms()), self.hostname)

    def history(self, name: str, taken: Callable[[str], bool]) -> str:
        """The next name for what `name` was until now that is not taken."""
        while True:
            moment_ms = self.now_ms()
            self._number = self._number + 1 if moment_ms == self._last_ms else 0
            self._last_ms = moment_ms
            date, _, time = iso_time(moment_ms).partition("T")
            digits = f"{time[:8].replace(':', '')}-{time[9:12]}"
            found = f"{name}-{date}-{digits}{_base36(self._number)}"
            if not taken(found):
                return found

    def temporary(self, name: str) -> str:
        self._temporary += 1
        return f"{name}.tmp-{self.process_id}-{_base36(self._temporary)}"


def iso_time(unix_ms: int) -> str:
    """As JavaScript writes it: 2024-01-02T03:04:05.678Z"""
    whole, _, fraction = runtime.to_rfc3339(unix_ms)[:-1].partition(".")
    return f"{whole}.{fraction:0<3}Z"


def created_ms(meta: Meta) -> int:
    """When; 0 where nothing readable tells."""
    try:
        return runtime.from_rfc3339(meta.created)
    except (ValueError, TypeError):
        return 0


def kept(disk: Disk, name: str) -> list[str]:
    """What `name` was before, oldest first."""
    pattern = re.compile(re.escape(name) + _DATE, re.ASCII)
    return [each for each in disk.list() if pattern.fullmatch(each)]


def replace(disk: Disk, temporary: str, name: str, old: str) -> None:
    """Durably put a file, whole and synced, in the place of another, which is kept as `old`."""
    names = disk.list()
    if name in names and old not in names:  # there already, if a crash interrupted this
        disk.link(name, old)
    disk.rename(temporary, name, replace=True)
    if surplus := kept(disk, name)[:-KEPT_MAX]:
        disk.remove(*surplus)


def sweep(disk: Disk, name: str, needed: str = "") -> None:
    """Remove what was being made of `name` by processes that are no more."""
    left = [n for n in disk.list() if n.startswith(f"{name}.tmp-") and n != needed]
    if left:
        disk.remove(*left)


def _base36(number: int) -> str:
    digits = ""
    while number or not digits:
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
    return digits
