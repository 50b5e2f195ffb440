"""The house rules no linter knows."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "holdfast"
MODULES = sorted(p for p in SOURCE.rglob("*.py") if not p.stem.endswith("_pb2"))  # not generated
LINES_MAX, FUNCTION_LINES_MAX = 400, 50

# Packages whose tests are not in a directory of the same name.
ELSEWHERE = {
    "formats/bolt": "tests/formats/test_bolt.py",
    "testing/owners": "tests/testing/test_owners.py",
    "integrations": "tests/integrations/pysyncobj",
    "runtime": "tests/test_runtime.py",
}

# Formats inside another format, which its page describes.
DESCRIBED_WITH = {
    "raft_meta": "bolt",
    "raft_entry": "raft_wal",
    "rlog_entry": "rlog",
    "rlog_commit": "rlog",
    "rlog_mark": "mark",
    "bar_time": "year_file",
    "marketstore_wal": "market_wal",
}


def name_of(path: Path) -> str:
    return str(path.relative_to(SOURCE))


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_modules_and_functions_are_short(path: Path) -> None:
    source = path.read_text()
    assert len(source.splitlines()) <= LINES_MAX
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and node.end_lineno:
            assert node.end_lineno - node.lineno < FUNCTION_LINES_MAX, node.name


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_every_module_says_what_it_promises(path: Path) -> None:
    source = path.read_text()
    assert not source or ast.get_docstring(ast.parse(source))


def test_every_package_has_a_directory_of_tests() -> None:
    """Modules of one package may share a test; a package may not go without."""
    for package in sorted({path.parent for path in MODULES} - {SOURCE}):
        tests = ROOT / "tests" / package.relative_to(SOURCE)
        elsewhere = ROOT / ELSEWHERE.get(str(package.relative_to(SOURCE)), "-")
        assert list(tests.glob("test_*.py")) or elsewhere.exists(), package


def test_every_format_has_its_page_and_its_golden_files() -> None:
    shared = {"__init__", "__pycache__", "flaw", "checksums", "views"}
    modules = {path.stem for path in (SOURCE / "formats").iterdir()} - shared
    formats = {DESCRIBED_WITH.get(module, module) for module in modules}
    assert formats == {path.stem for path in (ROOT / "docs/formats").glob("*.md")}
    provenance = (ROOT / "tests/golden/PROVENANCE").read_text()
    for format in formats:
        golden = [path for path in (ROOT / "tests/golden" / format).rglob("*") if path.is_file()]
        assert golden
        for path in golden:
            assert str(path.relative_to(ROOT / "tests/golden")) in provenance


def test_only_the_door_syncs_locks_and_renames() -> None:
    guarded = ("fsync", "fdatasync", "flock", "os.rename", "os.replace", "pwritev")
    for path in (
        SOURCE / "formats",
        SOURCE / "logs",
        SOURCE / "kv",
        SOURCE / "bucket",
        SOURCE / "bars",
    ):
        modules = list(path.rglob("*.py"))
        assert modules, path
        for module in modules:
            code = ast.unparse(ast.parse(module.read_text()))
            assert not [word for word in guarded if f"{word}(" in code], module


# Phrases that are hard to read.  Write "recover", "report", "release", "without limit", "is not".
UNCLEAR = re.compile(
    r"\b(told|mend(s|ed|ing)?|lets? go|for ever|at leisure|at hand|none of ours|to and fro"
    r"|(its|a) corpse|earlier life|look(s|ed) after|mak(es?|ing) (no )?sense|(keep|kept) aside)\b"
    r"|(?<!there )\bis no (?!longer\b|more\b)",
    re.IGNORECASE,
)
# In what users read, the subject of a sentence also has a name.
NAMELESS = re.compile(
    r"\b(whoever|nobody|somebody|anybody|everybody|is gone|for good|rotten"
    r"|tells? (of|what|how|which|whether|when|where))\b",
    re.IGNORECASE,
)
PATTERNS = (
    *(f"{top}/**/*.py" for top in ("src", "tests", "benchmarks", "campaign", "docs")),
    "docs/**/*.md",
)
UNCHECKED = {"golden", "upgrade.md"}  # upgrade.md lists the old names
PROSE = sorted(
    path
    for pattern in (*PATTERNS, "*.md")
    for path in ROOT.glob(pattern)
    if UNCHECKED.isdisjoint(path.relative_to(ROOT).parts)
    and path != Path(__file__)
    and not path.stem.endswith("_pb2")
)


def unclear(text: str, *, is_published: bool) -> list[str]:
    """Return the unclear phrases in a text, also those that a line break divides."""
    flat = re.sub(r"\s*\n\s*(?:# )?", " ", text)
    patterns = [UNCLEAR, NAMELESS] if is_published else [UNCLEAR]
    found = (match for pattern in patterns for match in pattern.finditer(flat))
    return [flat[max(0, match.start() - 30) : match.end() + 30] for match in found]


@pytest.mark.parametrize("path", PROSE, ids=lambda path: str(path.relative_to(ROOT)))
def test_prose_uses_plain_words(path: Path) -> None:
    is_published = path.relative_to(ROOT).parts[0] not in ("tests", "benchmarks")
    assert not unclear(path.read_text(), is_published=is_published)


def test_all_prose_is_checked() -> None:
    names = {str(path.relative_to(ROOT)) for path in PROSE}
    assert {"README.md", "CHANGELOG.md", "ARCHITECTURE.md", "docs/spark.md"} <= names
    assert {"docs/formats/sst.md", "src/holdfast/errors.py", "tests/test_disk.py"} <= names


@pytest.mark.parametrize(
    "phrase",
    [
        "the reader is told the index",
        "recovery mends the log",
        "'x' is no\n    # moment",
        "None if there is none, or only its corpse",
        "bytes that make no sense",
        "whoever writes to it",
        "it is\ngone",
    ],
)
def test_unclear_phrases_are_found(phrase: str) -> None:
    assert unclear(phrase, is_published=True)


def test_plain_phrases_are_not_found() -> None:
    assert not unclear("There is no log here.  It is no longer open.", is_published=True)


def test_the_glossary_has_one_line_for_each_term() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text()
    terms = re.findall(r"^\| ([^|]+) \| [^|]+ \|$", text, re.MULTILINE)[2:]
    assert terms == sorted(set(terms), key=str.lower)
    needed = {"owner", "guest", "segment", "mark", "bucket of objects", "bar bucket", "cut file"}
    assert needed | {"epoch", "fence", "lease", "TGID", "door", "floor"} <= set(terms)
