from dataclasses import dataclass

from holdfast.kv import Db
from holdfast.reports import numbers_of, prometheus_text


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
        "# HELP x_gets_total gets, since it was opened\n"
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
    with Db.open("memory://prometheus") as db:
        db.put(b"a", b"1").result()
        lines = prometheus_text(numbers_of(db.metrics()), "holdfast_kv").splitlines()
    assert "holdfast_kv_rows_written_total{} 1" in lines
    assert "# TYPE holdfast_kv_wal_ssts gauge" in lines
