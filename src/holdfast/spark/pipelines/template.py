"""The example that `holdfast pipeline init` creates: a pipeline that runs, with comments."""

from pathlib import Path

from holdfast.disk import OsDisk

PIPELINE = '''\
# A pipeline: sources, steps, sinks.  `holdfast pipeline validate FILE` lists its problems,
# `holdfast pipeline run FILE` runs it.  Paths are relative to this file.

name = "{name}"
checkpoint = "state/{name}"     # its progress; for this pipeline only
trigger = "available-now"       # all current rows, then stop; or "once", or "every 5s"

# A source becomes a view of its name.  Formats: holdfast-log, holdfast-kv, parquet, text...
[source.readings]
format = "text"                 # every file in the directory, line by line
path = "inbox"
parse = "json"                  # or "csv", or leave it out
schema = "room STRING NOT NULL, at TIMESTAMP, celsius DOUBLE"
# watermark = "at 5 minutes"    # how late a row may be, for windows and joins
# options = {{ maxFilesPerTrigger = 10 }}

# All rows of a table are there in every batch, to join with.  Formats: holdfast-bars, holdfast-kv,
# parquet... [table.names] format = "parquet" path = "names"

# A step is SQL over sources, tables and earlier steps, or a function: function = "module:name".
[step.warm]
sql = """
SELECT room AS key, CAST(celsius AS STRING) AS value FROM readings WHERE celsius > 20
"""

# A sink takes a source or a step.  Formats: holdfast-log, holdfast-kv, holdfast-bars, parquet.
[sink.warm_rooms]
from = "warm"
format = "holdfast-kv"
path = "warm-rooms"

[sink.archive]
from = "readings"
format = "parquet"
path = "archive"

# Rows that do not fit the schema go into a log, with the reason.
[dead_letter]
path = "dead-letters"
'''

SAMPLE = b"""\
{"room": "kitchen", "at": "2026-01-05T08:00:00Z", "celsius": 21.5}
{"room": "cellar", "at": "2026-01-05T08:00:00Z", "celsius": 12.0}
{"room": "attic", "at": "2026-01-05T08:00:00Z", "celsius": "broken"}
"""


def write_template(path: str | Path) -> list[str]:
    """Write the pipeline, and rows for it to read; return the paths that were created.

    FileExistsError if there is a file of that name; an existing inbox is not changed.
    """
    file = Path(path).absolute()
    if file.suffix != ".toml":
        raise ValueError(f"name it .toml, not {file.name}")
    disk = OsDisk(str(file.parent))
    disk.create(file.name, PIPELINE.format(name=file.stem).encode())
    if (file.parent / "inbox").exists():
        return [str(path)]
    disk.create("inbox/sample.jsonl", SAMPLE)
    return [str(path), str(Path(path).parent / "inbox" / "sample.jsonl")]
