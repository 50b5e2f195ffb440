from holdfast.testing import LogContract
from holdfast.testing.shanghai import ShanghaiSubject


class TestShanghai(ShanghaiSubject, LogContract):
    """The whole contract, as every log passes it."""
