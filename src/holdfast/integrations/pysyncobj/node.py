"""A SyncObj that acknowledges only what is durable.  The page: docs/integrations/pysyncobj.md

PySyncObj takes no journal as an argument, but keeps it, its transport and its serializer in one
attribute each, set once.  Here those three attributes are properties of a subclass that replace or
wrap the values which PySyncObj sets.  PySyncObj's own code runs unchanged.  One function is changed
for the whole process: pysyncobj.serializer.atomicReplace, a plain rename, now syncs.

When the journal fails, the node stops: see DurableSyncObj.

A node whose journal was repaired or replaced (RaftJournal.is_rejoining) may have given votes and
acknowledged entries that it does not know.  It does not vote, does not stand for election and
acknowledges no entry (CarefulTransport), until an entry that it has asked for since its start is
committed by a majority of the others and applied here.  The leader that appended this entry has all
entries that were ever committed or acknowledged to it, and no older vote of this node can still
elect a node that lacks the entry.  docs/integrations/pysyncobj.md has the argument.
"""

import copy
import logging
import math
import os
import queue
from typing import Any

import pysyncobj.serializer
import pysyncobj.syncobj
from pysyncobj import FAIL_REASON, SyncObj, SyncObjConf

from holdfast import runtime
from holdfast.disk import Disk, OsDisk
from holdfast.errors import UnsupportedError
from holdfast.integrations.pysyncobj.dumps import (
    JournalFirst,
    refuse_if_lost,
    replace_durably,
    sync_dump,
)
from holdfast.integrations.pysyncobj.journal import COMMAND_SIZE_MAX, RaftJournal
from holdfast.integrations.pysyncobj.messages import CarefulTransport
from holdfast.integrations.pysyncobj.rejoin import refuse_if_unfinished

_LOG = logging.getLogger("holdfast")
_NO_OP = 1  # the type of a command that changes nothing
_RELIED_ON = {
    "createJournal",
    "_SyncObj__raftLog",
    "_SyncObj__transport",
    "_SyncObj__serializer",
    "_SyncObj__raftLastApplied",
    "_SyncObj__raftElectionDeadline",
    "_SyncObj__votedForNodeId",
    "_SyncObj__commandsLocalCounter",
    "_SyncObj__commandsQueue",
    "_SyncObj__commandsWaitingCommit",
    "_SyncObj__commandsWaitingReply",
}


class DurableSyncObj(SyncObj):  # type: ignore[misc]  # PySyncObj has no types
    """Inherit from this in place of SyncObj; `conf.journalFile` names the journal's directory.

    The dump is `conf.fullDumpFile` or, if that is not set, the directory's name and ".dump".

    If a write or a sync fails, or the dump cannot be read, the node stops: it sends, votes, applies
    and acknowledges nothing.  `failure` says why.  Commands that wait get
    FAIL_REASON.UNKNOWN_OUTCOME; new commands and doTick raise PoisonedError.  With autoTick the
    node destroys itself.  Repair the disk and start the node again: it has all it acknowledged.
    """

    def __init__(
        self,
        selfNode: Any,
        otherNodes: Any,
        conf: SyncObjConf | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        _refuse_if_unknown()
        if conf is None or conf.journalFile is None:
            raise ValueError("conf.journalFile must name the journal's directory")
        directory = os.fspath(conf.journalFile)
        conf = copy.copy(conf)
        conf.journalFile = None  # so that PySyncObj creates a journal in memory, which is dropped
        conf.fullDumpFile = conf.fullDumpFile or f"{directory.rstrip('/')}.dump"
        pysyncobj.serializer.atomicReplace = replace_durably
        self.__dump_path: str = conf.fullDumpFile
        refuse_if_unfinished(directory)
        self.__asks_at = 0.0  # a node that is rejoining
        self.__journal = self._open_journal(directory)
        try:
            refuse_if_lost(self.__dump_path, directory, self.__journal)
            super().__init__(selfNode, otherNodes, conf, *args, **kwargs)
        except BaseException:
            self.__journal._destroy()
            raise
        conf.journalFile = directory
        # PySyncObj numbers its requests to the leader from 1 in every process.  An answer to a
        # request of the previous process would acknowledge another command.
        self._SyncObj__commandsLocalCounter = runtime.new_id().int

    @property
    def failure(self) -> str | None:
        """Return why this node has stopped; None while it runs."""
        return self.__journal.refusal

    @property
    def is_rejoining(self) -> bool:
        """Return whether this node lost its journal and does not vote yet: it fetches what it lost.

        That needs a majority of the cluster without this node.
        """
        return self.__journal.is_rejoining

    def _open_journal(self, directory: str) -> RaftJournal:
        if os.path.isfile(directory):
            raise UnsupportedError(
                f"{directory} is a file, perhaps a FileJournal; a durable journal is a directory"
            )
        disk: Disk = OsDisk(directory)
        return RaftJournal(disk, before_cut=lambda: sync_dump(self.__dump_path))

    # What PySyncObj sets once

    @property
    def _SyncObj__raftLog(self) -> RaftJournal:
        return self.__journal

    @_SyncObj__raftLog.setter
    def _SyncObj__raftLog(self, journal: Any) -> None:
        """PySyncObj's journal in memory is dropped."""

    @property
    def _SyncObj__transport(self) -> CarefulTransport:
        return self.__transport

    @_SyncObj__transport.setter
    def _SyncObj__transport(self, transport: Any) -> None:
        self.__transport = CarefulTransport(transport, self.__journal)

    @property
    def _SyncObj__serializer(self) -> JournalFirst:
        return self.__serializer

    @_SyncObj__serializer.setter
    def _SyncObj__serializer(self, serializer: Any) -> None:
        is_gzip = self.conf.deserializer is None
        path = self.__dump_path
        self.__serializer = JournalFirst(serializer, self.__journal, path, is_gzip=is_gzip)

    @property
    def _SyncObj__raftElectionDeadline(self) -> float:
        return math.inf if self.__journal.is_rejoining else self.__election_deadline

    @_SyncObj__raftElectionDeadline.setter
    def _SyncObj__raftElectionDeadline(self, deadline: float) -> None:
        self.__election_deadline = deadline

    # What PySyncObj does, and how it stops

    def _SyncObj__loadDumpFile(self, clearJournal: bool) -> None:
        """Stop if the dump cannot be read: PySyncObj would continue without it."""
        self.__serializer.is_starting = not clearJournal
        self._SyncObj__raftLastApplied = 0  # the dump's, as soon as all of it is loaded
        super()._SyncObj__loadDumpFile(clearJournal)
        if not self._SyncObj__raftLastApplied:
            self.__journal.fail(f"the dump {self.__dump_path} cannot be used: see pysyncobj's log")
            self.__journal.flush()

    def _onTick(self, timeToWait: float = 0.0) -> None:
        self.__journal.refuse_if_failed()
        try:
            super()._onTick(timeToWait)
            if self.__journal.is_rejoining:
                self.__rejoin()
        except Exception:
            if self.__journal.refusal is not None:  # else PySyncObj handles it
                self.__stop()
            raise

    def _applyCommand(self, command: bytes, callback: Any, commandType: int | None = None) -> None:
        self.__journal.refuse_if_failed()
        if len(command) >= COMMAND_SIZE_MAX:
            raise ValueError(f"a command has {len(command)} bytes; at most {COMMAND_SIZE_MAX} fit")
        super()._applyCommand(command, callback, commandType)

    def __rejoin(self) -> None:
        """Ask the leader for an entry: when it is applied here, nothing acknowledged is missing."""
        now = pysyncobj.syncobj.monotonicTime()
        if len(self.otherNodes) < 2:  # a majority of two is both: the other node has everything
            self.__finish_rejoin(None, FAIL_REASON.SUCCESS)
        elif self._getLeader() is not None and now >= self.__asks_at:
            self.__asks_at = now + 2 * self.conf.raftMaxTimeout  # the answer may be lost
            self._applyCommand(b"", self.__finish_rejoin, _NO_OP)

    def __finish_rejoin(self, _: Any, reason: int) -> None:
        if reason != FAIL_REASON.SUCCESS or not self.__journal.is_rejoining:
            return
        if self._SyncObj__votedForNodeId is None and self.selfNode is not None:
            # It may have voted in this term, and does not know for whom.
            self._SyncObj__setCurrentTerm(self.raftCurrentTerm, self.selfNode.id)
        self.__journal.finish_rejoin()
        _LOG.warning("node %s has fetched what it lost, and votes again", self.selfNode)

    def __stop(self) -> None:
        _LOG.critical("node %s has stopped: %s", self.selfNode, self.__journal.refusal)
        if self.conf.autoTick:
            self.destroy()
        for callback in self.__waiting():
            if callable(callback):  # else it is another node's, which asks the next leader
                callback(None, FAIL_REASON.UNKNOWN_OUTCOME)

    def __waiting(self) -> list[Any]:
        waiting = [
            callback
            for callbacks in self._SyncObj__commandsWaitingCommit.values()
            for _, callback in callbacks
        ]
        waiting += self._SyncObj__commandsWaitingReply.values()
        try:
            while True:
                waiting.append(self._SyncObj__commandsQueue.get_nowait()[1])
        except queue.Empty:
            self._SyncObj__commandsWaitingCommit.clear()
            self._SyncObj__commandsWaitingReply.clear()
            return waiting


def _refuse_if_unknown() -> None:
    """Raise UnsupportedError if PySyncObj lacks a name: the node would run without its journal."""
    serializer = pysyncobj.serializer.Serializer
    is_known = (
        _RELIED_ON.issubset(SyncObj.__init__.__code__.co_names)
        and hasattr(SyncObj, "_SyncObj__loadDumpFile")
        and hasattr(SyncObj, "_SyncObj__setCurrentTerm")
        and "atomicReplace" in serializer.serialize.__code__.co_names
        and "atomicReplace" in serializer.setTransmissionData.__code__.co_names
    )
    if not is_known:
        version = pysyncobj.version.VERSION
        raise UnsupportedError(f"PySyncObj {version} is not supported; use 0.3.17")
