"""`holdfast spark`: what Spark needs on this machine, and a faster start."""

from pathlib import Path

import typer

from holdfast.cli.options import JsonOption
from holdfast.cli.output import answer, human_size, page, progress
from holdfast.cli.sparking import need_spark

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Prepare and inspect Spark on this machine."
)


@app.command()
def warm(as_json: JsonOption = False) -> None:
    """Create the class cache that halves the start time of Spark.

    It takes about a minute, once for each Java and each Spark. Sessions use the cache if it exists;
    nothing else creates it.
    """
    from holdfast.spark import warm

    with progress("creating the class cache"):
        path = warm()
    size = path.stat().st_size
    document = {"class_cache": str(path), "size": size}
    answer(f"{path} ({human_size(size)})", document, as_json=as_json)


@app.command()
def info(as_json: JsonOption = False) -> None:
    """Show the Spark, the Java and the class cache that sessions use."""
    facts = _facts()
    shown = {name.replace("_", " "): value or "none" for name, value in facts.items()}
    answer(page(shown), facts, as_json=as_json)


def _facts() -> dict[str, str | None]:
    need_spark()
    from pyspark import __version__ as version

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
