"""A durable journal for PySyncObj.  The page: docs/integrations/pysyncobj.md"""

from typing import TYPE_CHECKING, Any

from holdfast.errors import MissingError
from holdfast.integrations.pysyncobj.journal import RaftJournal

if TYPE_CHECKING:
    from holdfast.integrations.pysyncobj.node import DurableSyncObj

__all__ = ["DurableSyncObj", "RaftJournal"]


def __getattr__(name: str) -> Any:
    if name != "DurableSyncObj":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from holdfast.integrations.pysyncobj import node
    except ModuleNotFoundError as error:
        if error.name != "pysyncobj":
            raise
        how = "Run: pip install 'holdfast[pysyncobj]'"
        raise MissingError(f"PySyncObj is not installed.  {how}") from error
    return node.DurableSyncObj
