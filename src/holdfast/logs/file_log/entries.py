"""The entries of one append: encoded before their commit, which says where they are or why not."""

from collections.abc import Sequence

import numpy as np

from holdfast.formats import rlog
from holdfast.formats.rlog_entry import (
    ENTRY_HEADER_SIZE,
    STATE,
    Bytes,
    Offsets,
    encode_type_and_term,
    join_entries,
)

NO_ENTRY = "an empty batch; expected at least one entry"


class Entries:
    """A batch, encoded by the thread that appends it; its commit sets `last` or `error`."""

    __slots__ = (
        "data", "ends", "entries", "error", "ids", "index", "last", "once", "payloads", "size",
        "terms",
    )  # fmt: skip

    def __init__(
        self,
        ids: Sequence[bytes],
        encoded: tuple[bytes, Offsets],
        terms: tuple[int, int],
        *,
        payloads: Sequence[Bytes] | None = None,
        index: int | None = None,
        once: bool = False,
    ) -> None:
        self.ids, (self.data, self.ends) = ids, encoded
        self.terms = terms  # of the first and the last entry
        self.payloads = payloads  # given if the entries take the log's term at their commit
        self.index = index  # of the first entry; None to append
        self.once = once  # skip it if the request is known
        self.entries = len(ids)
        self.size = len(self.data) - ENTRY_HEADER_SIZE * self.entries
        self.last = 0
        self.error: Exception | None = None
        longest = int(np.diff(self.ends, prepend=0).max())
        if longest > rlog.DATA_SIZE_MAX:
            size, most = longest - ENTRY_HEADER_SIZE, rlog.DATA_SIZE_MAX - ENTRY_HEADER_SIZE
            raise ValueError(f"a payload of {size} bytes; the most is {most}")


def encode_states(ids: Sequence[bytes], datas: Sequence[Bytes], term: int) -> tuple[bytes, Offsets]:
    rest = encode_type_and_term(STATE, term)
    return join_entries([request_id + rest for request_id in ids], datas)
