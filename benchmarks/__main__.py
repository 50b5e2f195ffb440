"""Run one part, print its table, save it, and make the page again."""

import argparse
import importlib
import sys

from benchmarks import growth, harness, page

PARTS = (
    "logs",
    "file_log",
    "kv",
    "pysyncobj",
    "bars",
    "spark",
    "kv_spark",
    "bars_spark",
    "growth",
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--scale", type=float, default=1.0, help="of the data; below 1 for a look")
    parser.add_argument("--only", default="", help="functions whose name contains this; not saved")
    options = parser.parse_args()
    about = harness.machine()
    module = importlib.import_module(f"benchmarks.{options.part}")
    found = []
    for each in module.run(options.scale, options.only):
        found.append(each)
        lines = growth.table([each]) if isinstance(each, growth.Curve) else page.table([each])
        print("\n".join(lines[2:]), flush=True)
    if options.only or options.scale != 1.0:
        return
    path = harness.save(options.part, f"make bench PART={options.part}", about, found)
    page.write_page()
    print(f"saved {path} and docs/benchmarks.md", file=sys.stderr)


if __name__ == "__main__":
    main()
