from dataclasses import dataclass

from holdfast.doors import open_kv
from holdfast.metrics import Histogram, numbers_of, prometheus_text


@dataclass(frozen=True)
class Inner:
    rows: int


@dataclass(frozen=True)
class Outer:
    gets_total: int
    fenced: bool
    name: str
    l0: Inner


def test_every_number_is_a_metric() -> None:
    numbers = numbers_of(Outer(7, True, "left out", Inner(2)))
    assert prometheus_text(numbers, "x", store='a"\\\n') == (
        "# HELP x_gets_total gets, since the store was opened\n"
        "# TYPE x_gets_total counter\n"
        'x_gets_total{store="a\\"\\\\\\n"} 7\n'
        "# HELP x_fenced fenced\n"
        "# TYPE x_fenced gauge\n"
        'x_fenced{store="a\\"\\\\\\n"} 1\n'
        "# HELP x_l0_rows l0 rows\n"
        "# TYPE x_l0_rows gauge\n"
        'x_l0_rows{store="a\\"\\\\\\n"} 2\n'
    )


def test_a_writer_can_be_watched() -> None:
    with open_kv("memory://prometheus", create=True) as db:
        db.put(b"a", b"1").result()
        lines = prometheus_text(db.metrics(), "holdfast_kv").splitlines()
    assert "holdfast_kv_rows_written_total{} 1" in lines
    assert "# TYPE holdfast_kv_wal_ssts gauge" in lines


def test_a_histogram_counts_by_upper_bound() -> None:
    histogram = Histogram((0.1, 1.0))
    for seconds in (0.05, 0.1, 0.5, 30.0):
        histogram.observe(seconds)
    metric = histogram.metric("commit_seconds", "how long a commit took")
    assert metric.buckets == ((0.1, 2), (1.0, 3), (float("inf"), 4))
    text = prometheus_text([metric], "holdfast_log", path="orders")
    assert 'holdfast_log_commit_seconds_bucket{path="orders",le="0.1"} 2\n' in text
    assert 'holdfast_log_commit_seconds_bucket{path="orders",le="+Inf"} 4\n' in text
    assert 'holdfast_log_commit_seconds_count{path="orders"} 4\n' in text
    assert 'holdfast_log_commit_seconds_sum{path="orders"} 30.65\n' in text
    assert "# TYPE holdfast_log_commit_seconds histogram\n" in text
