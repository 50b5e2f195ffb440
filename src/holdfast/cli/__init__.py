"""The command line.  The page: docs/cli.md"""

from holdfast.cli.app import main

__all__ = ["main"]
