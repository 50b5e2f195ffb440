"""How fast, beside whom.  `make bench PART=logs`, or `python -m benchmarks --help`."""
