"""`holdfast bars create`, `delete` and `flush`."""

from typing import Any

from holdfast.cli.opening import bar_owner, bar_reader, parse_buckets
from holdfast.cli.options import (
    ApplyOption,
    BucketNames,
    DayOption,
    JsonOption,
    RootPath,
    StartOption,
    StopOption,
)
from holdfast.cli.output import PLANNED, answer, count_of, table


def create(root: RootPath, as_json: JsonOption = False) -> None:
    """Create an empty store, durably."""
    from holdfast.doors import create_bars

    create_bars(root).close()
    answer(f"created {root}: an empty bar store", {"path": root, "created": True}, as_json=as_json)


def delete(
    root: RootPath,
    buckets: BucketNames,
    start: StartOption = None,
    stop: StopOption = None,
    day: DayOption = None,
    apply: ApplyOption = False,
    as_json: JsonOption = False,
) -> None:
    """Plan the deletion of rows; --apply deletes them as one durable group.

    Rows with start <= time < stop; the time of a bar is the start of its interval.
    """
    from holdfast.cli.bars.times import parse_span

    where, span = parse_buckets(buckets), parse_span(start, stop, day)
    if apply:
        with bar_owner(root, as_json=as_json) as store:
            count = store.delete(*where, **span)
        document: dict[str, Any] = {"applied": True, "rows": count}
        answer(f"deleted {count_of(count, 'row')}", document, as_json=as_json)
        return
    with bar_reader(root) as reader:
        counts = _counts(reader.query(*where, **span, columns=[]))
    count = sum(rows for _, rows, _, _ in counts)
    document = {"applied": False, "rows": count, "symbols": {row[0]: row[1] for row in counts}}
    lines = [table(["SYMBOL", "ROWS", "FIRST", "LAST"], counts)] if counts else []
    lines += [f"would delete {count_of(count, 'row')}", PLANNED]
    answer(lines, document, as_json=as_json)


def _counts(rows: Any) -> list[tuple[str, int, str, str]]:
    """Return by symbol the number of rows, and the times of the first and the last."""
    import pyarrow as pa
    import pyarrow.compute as pc

    seconds = rows.column("time").cast(pa.timestamp("s", "UTC"), safe=False)
    whole = rows.set_column(1, "time", pc.strftime(seconds, format="%Y-%m-%d %H:%M:%SZ"))
    grouped = whole.group_by("symbol", use_threads=False).aggregate(
        [("time", "count"), ("time", "first"), ("time", "last")]
    )
    names = ("symbol", "time_count", "time_first", "time_last")
    return list(zip(*(grouped.column(name).to_pylist() for name in names), strict=True))


def flush(root: RootPath, as_json: JsonOption = False) -> None:
    """Write all committed groups from the WAL files to the year files, and remove the WAL files.

    A live owner does so all the time; this is for a store whose owner was killed.
    """
    with bar_reader(root) as reader:
        groups = reader.status().waiting
    with bar_owner(root, as_json=as_json) as store:
        store.flush()
    text = f"wrote {count_of(groups, 'group')} to the year files"
    answer(text, {"path": root, "groups": groups}, as_json=as_json)
