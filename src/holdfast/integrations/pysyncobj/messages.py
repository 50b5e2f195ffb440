"""What a node says, and what it takes from what others say.  docs/integrations/pysyncobj.md

Promised here:
1. Nothing that others will rely on is sent before the journal is flushed.
2. What a follower has is deleted only where it contradicts the leader.  PySyncObj deletes all that
   is behind the entries of a message; until the next one comes, a node would vote as if it had
   never had entries that it has acknowledged.
3. Nothing is committed by a part of a snapshot.  PySyncObj takes the leader's word for how far to
   commit, though in a log that is about to be replaced: a leader that was cut off would tell those
   who wait for their commands that they were committed, and then drop them.
"""

from collections.abc import Callable
from typing import Any

from holdfast.integrations.pysyncobj.journal import RaftJournal

# Messages that say nothing about what this node has: who asks for a command, and where it went.
# That place is no promise: no other entry will ever have the same index and the same term.
_NO_PROMISE = ("apply_command", "apply_command_response")


class CarefulTransport:
    """A transport of PySyncObj's, and what it needs to keep the promises above."""

    def __init__(self, transport: Any, journal: RaftJournal) -> None:
        self._transport, self._journal = transport, journal

    def send(self, node: Any, message: Any) -> Any:
        if message["type"] not in _NO_PROMISE:
            self._journal.flush()
        return self._transport.send(node, message)

    def setOnMessageReceivedCallback(self, callback: Callable[[Any, Any], None] | None) -> None:
        if callback is None:
            self._transport.setOnMessageReceivedCallback(None)
        else:
            self._transport.setOnMessageReceivedCallback(
                lambda node, message: self._hear(callback, node, message)
            )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def _hear(self, callback: Callable[[Any, Any], None], node: Any, message: Any) -> None:
        if message["type"] != "append_entries":
            return callback(node, message)
        if "serialized" in message:
            committed = min(message["commit_index"], self._journal.getRaftCommitIndex())
            message = {**message, "commit_index": committed}
        callback(node, message)
        return self._journal.take_back()
