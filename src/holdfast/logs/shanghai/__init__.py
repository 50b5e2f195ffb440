"""The Shanghai log.  The page: docs/formats/shanghai.md"""

from holdfast.logs.shanghai.guest import ShanghaiGuest
from holdfast.logs.shanghai.log import ShanghaiLog
from holdfast.logs.shanghai.retention import Compaction, Retention

__all__ = ["Compaction", "Retention", "ShanghaiGuest", "ShanghaiLog"]
