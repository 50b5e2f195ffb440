"""`holdfast bars delete` and `write-back`."""

from typing import Annotated, Any

import typer

from holdfast.cli.bars_opening import (
    BucketNames,
    EndOption,
    RootPath,
    StartOption,
    find_root,
    guest_of,
    owner_of,
    parse_buckets,
    parse_end,
    parse_start,
)
from holdfast.cli.console import JsonOption, answer, answer_json, table
from holdfast.cli.units import count_of


def delete(
    root: RootPath,
    buckets: BucketNames,
    start: StartOption = None,
    end: EndOption = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Delete; else only what would go is told.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Delete the rows of some buckets from --start to --end, as one durable group.

    A bar counts if any of its interval lies between them.  Without --yes it is a dry run.
    """
    where, low, high = parse_buckets(buckets), parse_start(start), parse_end(end)
    if not yes:
        with guest_of(root) as guest:
            counts = _counts(guest.query(*where, start=low, end=high, columns=[]))
        _tell_plan(counts, as_json=as_json)
        return
    with owner_of(root, as_json=as_json) as store:
        count = store.delete(*where, start=low, end=high)
    if as_json:
        answer_json({"deleted": count, "dry_run": False})
    else:
        answer(f"deleted {count_of(count, 'row')}")


def _counts(rows: Any) -> list[tuple[str, int, str, str]]:
    """By symbol: how many rows, and when the first and the last are."""
    import pyarrow as pa
    import pyarrow.compute as pc

    seconds = rows.column("time").cast(pa.timestamp("s", "UTC"), safe=False)
    whole = rows.set_column(1, "time", pc.strftime(seconds, format="%Y-%m-%d %H:%M:%SZ"))
    grouped = whole.group_by("symbol", use_threads=False).aggregate(
        [("time", "count"), ("time", "first"), ("time", "last")]
    )
    columns = [grouped.column(name).to_pylist() for name in ("symbol", "time_count")]
    columns += [grouped.column(name).to_pylist() for name in ("time_first", "time_last")]
    return list(zip(*columns, strict=True))


def _tell_plan(counts: list[tuple[str, int, str, str]], *, as_json: bool) -> None:
    total = sum(count for _, count, _, _ in counts)
    if as_json:
        symbols = {symbol: count for symbol, count, _, _ in counts}
        answer_json({"would_delete": total, "dry_run": True, "symbols": symbols})
        return
    if counts:
        answer(table(["SYMBOL", "ROWS", "FIRST", "LAST"], counts))
    answer(f"would delete {count_of(total, 'row')}; --yes does it")


def write_back(root: RootPath, as_json: JsonOption = False) -> None:
    """Bring all that is committed from the logs to the year files, and remove the logs.

    The owner of a store does so by itself, all the time; this is for one that was killed.
    """
    from holdfast.reports.bar_logs import find_wals

    find_root(root)
    groups = sum(log.waiting for log in find_wals(root))
    with owner_of(root, as_json=as_json):
        pass  # an owner writes back as it opens and as it closes
    if as_json:
        answer_json({"path": root, "groups": groups})
    else:
        answer(f"wrote {count_of(groups, 'group')} to the year files")
