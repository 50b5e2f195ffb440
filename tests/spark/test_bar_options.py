import pytest

from holdfast.bars.staging import Transaction
from holdfast.formats.bar_time import year_start_ns
from holdfast.spark.bar_options import BarOptions
from holdfast.spark.options import Use

WANTED = {"path": "/bars", "timeframe": "1Min", "attributes": "OHLCV"}


def test_options_in_any_case_are_understood() -> None:
    options = BarOptions.parse(
        WANTED
        | {
            "SYMBOLS": "AAPL, MSFT,AAPL",
            "years": "2019,2021-2023",
            "startingTime": "2021-03-01T09:30",
        }
        | {"endingTime": "1700000000000000000", "columns": "Close", "maxpartitionbytes": "7"}
    ).only_for("read")
    assert options.symbols == ("AAPL", "MSFT")
    assert options.years == (2019, 2021, 2022, 2023)
    assert options.span.start_ns == year_start_ns(2021) + (59 * 24 * 60 + 570) * 60 * 10**9
    assert options.span.stop_ns == 1_700_000_000_000_000_000
    assert (options.columns, options.max_partition_bytes) == (("Close",), 7)
    assert BarOptions.parse(WANTED | {"symbols": "*"}).symbols is None
    written = BarOptions.parse(WANTED | {"ticks": "TRUE", "txnAppId": "a", "txnVersion": "0"})
    assert written.only_for("write").ticks
    assert written.transaction == Transaction("a", 0)


@pytest.mark.parametrize(
    ("use", "options", "advice"),
    [
        ("read", WANTED | {"symbol": "A"}, "remove the option symbol: read of holdfast-bars takes"),
        ("read", WANTED | {"simbols": "A"}, "holdfast-bars has the options attributes, "),
        ("read", WANTED | {"symbols": "A,,B"}, "set symbols to names separated by commas"),
        ("read", WANTED | {"years": "19"}, "set years to years such as"),
        ("read", WANTED | {"startingTime": "yesterday"}, "set startingTime to a time such as"),
        ("read", WANTED | {"maxPartitionBytes": "0"}, "a number from 1 on"),
        ("read", {"timeframe": "1D", "attributes": "X"}, "name the store's directory"),
        ("read", {"path": "/bars", "attributes": "X"}, "set timeframe"),
        ("read", WANTED | {"timeframe": "1Year"}, "is not a timeframe"),
        (
            "write",
            WANTED | {"symbols": "A"},
            "remove the option symbols: write of holdfast-bars takes",
        ),
        ("write", WANTED | {"ticks": "yes"}, "set ticks to one of true, false"),
        ("write", WANTED | {"txnAppId": "a"}, "set both txnAppId and txnVersion"),
        ("write", WANTED | {"txnAppId": "a", "txnVersion": "-1"}, "a number from 0 on"),
        ("writeStream", WANTED | {"txnAppId": "a", "txnVersion": "1"}, "remove the option txnApp"),
    ],
)
def test_an_invalid_option_is_refused(use: Use, options: dict[str, str], advice: str) -> None:
    with pytest.raises(ValueError, match=advice):
        BarOptions.parse(options).only_for(use)
