import pytest
import typer

from holdfast.cli.units import (
    count_of,
    human_duration,
    human_size,
    human_time,
    parse_duration_ms,
    parse_size,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4096", 4096),
        ("1b", 1),
        ("1KB", 1024),
        ("1 kib", 1024),
        ("64MB", 2**26),
        ("1.5g", 3 * 2**29),
    ],
)
def test_sizes_are_read_as_people_write_them(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "ms"), [("200ms", 200), ("0.2s", 200), ("5m", 300_000), ("7d", 7 * 86_400_000)]
)
def test_durations_are_read_as_people_write_them(text: str, ms: int) -> None:
    assert parse_duration_ms(text) == ms


@pytest.mark.parametrize("text", ["", "MB", "-1", "1x", "1 MB more", "1e3", "ib"])
def test_what_is_no_size_is_refused_with_examples(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="not a size: write"):
        parse_size(text)


@pytest.mark.parametrize("text", ["", "7", "s", "-1s", "1y", "1mb"])
def test_a_duration_needs_its_unit(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="not a duration: write"):
        parse_duration_ms(text)


def test_sizes_times_and_counts_are_told_briefly() -> None:
    assert [human_size(n) for n in (0, 1023, 1024, 2**20 - 1, 3 * 2**29, 2**52)] == [
        "0 B", "1023 B", "1.0 KiB", "1024.0 KiB", "1.5 GiB", "4096.0 TiB",
    ]  # fmt: skip
    assert human_time(0) == "1970-01-01 00:00:00Z"
    assert human_time(2**64 - 1) == f"{2**64 - 1} ms"
    assert [count_of(n, "entry") for n in (0, 1, 2000)] == ["0 entries", "1 entry", "2,000 entries"]
    assert [count_of(n, "key") for n in (1, 2)] == ["1 key", "2 keys"]
    assert [human_duration(n) for n in (0, 1500, 300_000, 7 * 86_400_000, 2**40)] == [
        "0s", "1500ms", "5m", "1w", f"{2**40}ms",
    ]  # fmt: skip
