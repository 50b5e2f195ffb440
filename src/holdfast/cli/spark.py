"""`holdfast spark`: what Spark needs on this machine, and a faster start."""

from pathlib import Path

import typer

from holdfast.cli.console import JsonOption, answer, answer_json, progress
from holdfast.cli.units import human_size
from holdfast.errors import MissingError

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Prepare and inspect Spark on this machine."
)


@app.command()
def warm(as_json: JsonOption = False) -> None:
    """Make the class cache that lets Spark start in half the time.

    It takes about a minute, once for each Java and each Spark. Sessions make it by themselves, in
    the background after their first run.
    """
    from holdfast.spark import warm

    with progress("making the class cache"):
        path = warm()
    if as_json:
        answer_json({"class_cache": str(path), "size": path.stat().st_size})
    else:
        answer(f"{path} ({human_size(path.stat().st_size)})")


@app.command()
def info(as_json: JsonOption = False) -> None:
    """Say which Spark and which Java would be used, and whether their start is fast."""
    facts = _facts()
    if as_json:
        answer_json(facts)
        return
    width = max(map(len, facts))
    for name, value in facts.items():
        answer(f"{name.replace('_', ' '):<{width}}  {'none' if value is None else value}")


def _facts() -> dict[str, str | None]:
    try:
        from pyspark import __version__ as version
    except ModuleNotFoundError as error:
        raise MissingError("Spark is not installed.  Run: pip install 'holdfast[spark]'") from error
    from holdfast.spark.cachedir import cache_dir
    from holdfast.spark.classcache import cache_path
    from holdfast.spark.java import find_java

    java = find_java()
    cache: Path = cache_path(java)
    return {
        "pyspark": version,
        "java": str(java.path),
        "java_version": java.banner.partition("\n")[0],
        "java_from": java.origin,
        "class_cache": str(cache) if cache.is_file() else None,
        "cache_directory": str(cache_dir()),
    }
