"""SlateDB, as the benchmarks drive it: its rows can be compared here."""

from benchmarks.kv_stores import HastySlateDb


class SlateDb(HastySlateDb):
    """One store, open."""

    def close(self) -> None:
        super().close()
        self.loop.close()

    def delete(self, key: bytes) -> None:
        self._do(self.db.delete(key))

    def items(self) -> dict[bytes, bytes]:
        async def work() -> dict[bytes, bytes]:
            bounds = {"start_inclusive": False, "end_inclusive": False}
            rows = await self.db.scan(self.api.KeyRange(start=None, end=None, **bounds))
            found: dict[bytes, bytes] = {}
            while batch := await rows.next_batch(1000):
                found |= {row.key: row.value for row in batch}
            return found

        return self._do(work())
