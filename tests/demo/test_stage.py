from io import StringIO

from rich.console import Console

from holdfast.demo.stage import Stage

WORDS = "compacted 9,000 rows to 2,346 in 1.5 s, swept 31 objects and left 8; 0 read differently"


def told(width: int, *, good: bool | None) -> list[str]:
    out = StringIO()
    stage = Stage(Console(file=out, width=width))
    if good is None:
        stage.say(WORDS, "dim")
    else:
        stage.verdict(good, WORDS)
    return out.getvalue().splitlines()


def test_what_is_too_long_goes_on_below_its_words() -> None:
    first, second = told(80, good=True)
    assert first.startswith("   ✓ compacted")
    assert second.startswith("     ")
    assert second[5] != " "
    assert max(len(first), len(second)) <= 80
    assert told(200, good=False) == [f"   ✗ {WORDS}"]
    first, second = told(80, good=None)
    assert (first[:4], second[:3]) == ("   c", "   ")
    assert second[3] != " "
