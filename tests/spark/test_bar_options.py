import pytest

from holdfast.bars.staging import Transaction
from holdfast.formats.bar_time import year_start_ns
from holdfast.spark.bar_options import Use, parse_options

WANTED = {"path": "/bars", "timeframe": "1Min", "attributes": "OHLCV"}


def test_options_in_any_case_are_understood() -> None:
    options = parse_options(
        WANTED
        | {"SYMBOLS": "AAPL, MSFT,AAPL", "years": "2019,2021-2023", "start": "2021-03-01T09:30"}
        | {"end": "1700000000000000000", "columns": "Close", "maxpartitionbytes": "7"}
    ).only_for("read")
    assert options.symbols == ("AAPL", "MSFT")
    assert options.years == (2019, 2021, 2022, 2023)
    assert options.span.start_ns == year_start_ns(2021) + (59 * 24 * 60 + 570) * 60 * 10**9
    assert options.span.end_ns == 1_700_000_000_000_000_000
    assert (options.columns, options.partition_bytes) == (("Close",), 7)
    assert parse_options(WANTED | {"symbols": "*"}).symbols is None
    written = parse_options(WANTED | {"ticks": "TRUE", "txnAppId": "a", "txnVersion": "0"})
    assert written.only_for("write").ticks
    assert written.transaction == Transaction("a", 0)


@pytest.mark.parametrize(
    ("use", "options", "advice"),
    [
        ("read", WANTED | {"symbol": "A"}, "remove the option symbol: read takes"),
        ("read", WANTED | {"simbols": "A"}, "holdfast-bars knows attributes, "),
        ("read", WANTED | {"symbols": "A,,B"}, "names with commas"),
        ("read", WANTED | {"years": "19"}, "set years to such as"),
        ("read", WANTED | {"start": "yesterday"}, "set start and end"),
        ("read", WANTED | {"maxPartitionBytes": "0"}, "a number from 1 on"),
        ("read", {"timeframe": "1D", "attributes": "X"}, "name the root"),
        ("read", {"path": "/bars", "attributes": "X"}, "set timeframe"),
        ("read", WANTED | {"timeframe": "1Year"}, "is not a timeframe"),
        ("write", WANTED | {"symbols": "A"}, "remove the option symbols: write takes"),
        ("write", WANTED | {"ticks": "yes"}, "set ticks to true or false"),
        ("write", WANTED | {"txnAppId": "a"}, "set both txnAppId and txnVersion"),
        ("write", WANTED | {"txnAppId": "a", "txnVersion": "-1"}, "a number from 0 on"),
        ("writeStream", WANTED | {"txnAppId": "a", "txnVersion": "1"}, "remove the option txnApp"),
    ],
)
def test_what_makes_no_sense_is_refused(use: Use, options: dict[str, str], advice: str) -> None:
    with pytest.raises(ValueError, match=advice):
        parse_options(options).only_for(use)
