"""The Shanghai log.  The page: docs/formats/shanghai.md"""

from holdfast.logs.retention import Compaction, Retention
from holdfast.logs.shanghai.guest import ShanghaiGuest
from holdfast.logs.shanghai.log import ShanghaiLog

__all__ = ["Compaction", "Retention", "ShanghaiGuest", "ShanghaiLog"]
