"""The status of a log, from names, headers and its end.  holdfast.logs.verify reads the rest."""

from collections import Counter
from dataclasses import dataclass

from holdfast import runtime
from holdfast.disk import Disk, OsDisk
from holdfast.logs.log import Damage, Described, LogReader, SegmentInfo
from holdfast.logs.opening import format_of
from holdfast.logs.replicas import Replicas
from holdfast.logs.verify import (
    Pause,
    VerifyPlan,
    count_of,
    damaged_side_files,
    judge,
    path_of,
    verify_segment,
)
from holdfast.metrics import Metric
from holdfast.verdicts import CutFile, Owner, Verdict, find_owner


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    name: str
    acknowledged: int
    lag: int  # entries not acknowledged
    updated_ms: int


@dataclass(frozen=True, slots=True)
class LogStatus:
    """A summary of one log."""

    path: str
    format: str
    verdict: Verdict
    first_index: int
    last_index: int
    entries: int
    size: int
    states: dict[str, int]  # how many segments are active, sealed, damaged
    segments: tuple[SegmentInfo, ...]
    damage: tuple[Damage, ...]
    torn: Damage | None
    cuts: tuple[CutFile, ...]
    replicas: tuple[ReplicaStatus, ...]
    owner: Owner | None
    facts: dict[str, str]  # what only logs of this format have
    gauges: tuple[Metric, ...]  # likewise

    def metrics(self) -> list[Metric]:
        """Return what can be watched without owning the log."""
        values = {
            "first_index": (self.first_index, "index of the first entry"),
            "last_index": (self.last_index, "index of the last entry; one less if there is none"),
            "size_bytes": (self.size, "bytes in segments"),
            "segments": (len(self.segments), "files that hold entries"),
            "damaged": (len(self.damage), "damage found by opening, a torn end not counted"),
            "torn_tail": (int(self.torn is not None), "1 if an append was cut short"),
        }
        about = "entries not acknowledged"
        return [
            *(Metric(name, "gauge", value, what) for name, (value, what) in values.items()),
            *(
                Metric("replica_lag", "gauge", one.lag, about, (("replica", one.name),))
                for one in self.replicas
            ),
            *self.gauges,
        ]


def status_of(reader: LogReader, disk: Disk, *, pause: Pause = runtime.sleep_ms) -> LogStatus:
    """Return the status of an open log.  Its sealed segments are not read."""
    format, segments = format_of(disk), tuple(reader.segments())
    damage = (*reader.damage, *damaged_side_files(disk))
    work = VerifyPlan(path_of(disk), format.name, segments, damage)
    found = verify_segment(work, segments[-1], disk=disk, pause=pause) if segments else None
    torn = found if isinstance(found, Damage) and found.torn else None
    return LogStatus(
        path=work.path,
        format=format.name,
        verdict=judge([*damage, *([torn] if torn else [])]),
        first_index=reader.first_index,
        last_index=reader.last_index,
        entries=sum(map(count_of, segments)),
        size=sum(segment.size for segment in segments),
        states=dict(Counter(segment.state for segment in segments)),
        segments=segments,
        damage=damage,
        torn=torn,
        cuts=tuple(CutFile(n, size) for n, size in disk.list().items() if n.endswith(".cut")),
        replicas=replicas_of(disk, reader.last_index),
        owner=find_owner(disk, format.locked_file) if isinstance(disk, OsDisk) else None,
        facts=reader.facts() if isinstance(reader, Described) else {},
        gauges=tuple(metric for metric in reader.metrics() if metric.kind == "gauge"),
    )


def replicas_of(disk: Disk, last_index: int) -> tuple[ReplicaStatus, ...]:
    """Return the replicas whose files are sound, and how far each is behind.

    damaged_side_files reports the others.
    """
    return tuple(
        ReplicaStatus(r.name, r.acknowledged, max(0, last_index - r.acknowledged), r.updated_ms)
        for r in Replicas(disk).survey()[0]
    )
