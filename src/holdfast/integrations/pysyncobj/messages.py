"""Messages that a node sends and receives.  The page: docs/integrations/pysyncobj.md

This module promises:
1. Nothing that other nodes rely on is sent before the journal is flushed.
2. A follower's entries are deleted only where they contradict the leader's.  PySyncObj deletes all
   entries after those of a message; until the next message, a node would vote as if it had never
   had entries that it has acknowledged.
3. Nothing is committed by a part of a snapshot.  PySyncObj uses the leader's commit index, but in a
   log that is about to be replaced: a leader that was partitioned would report commands as
   committed, and then drop them.
4. A node that is rejoining gives no vote, and acknowledges no entry: the leader commits without it.
"""

from collections.abc import Callable
from typing import Any

from holdfast.integrations.pysyncobj.journal import RaftJournal

# Messages that do not depend on this node's journal: a request for a command, and its position.
# The position promises nothing: no other entry will ever have the same index and the same term.
_NO_PROMISE = ("apply_command", "apply_command_response")
_ELECTIONS = ("request_vote", "timeout_now")


class CarefulTransport:
    """A transport of PySyncObj that keeps the promises above."""

    def __init__(self, transport: Any, journal: RaftJournal) -> None:
        self._transport, self._journal = transport, journal

    def send(self, node: Any, message: Any) -> Any:
        if message["type"] not in _NO_PROMISE:
            self._journal.flush()
        if self._journal.is_rejoining and message["type"] == "next_node_idx":
            message = {**message, "success": False}
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
        if self._journal.is_rejoining and message["type"] in _ELECTIONS:
            return None
        if message["type"] != "append_entries":
            return callback(node, message)
        if "serialized" in message:
            committed = min(message["commit_index"], self._journal.getRaftCommitIndex())
            message = {**message, "commit_index": committed}
        callback(node, message)
        return self._journal.take_back()
