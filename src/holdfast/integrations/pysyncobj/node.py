"""A SyncObj that promises nothing before it is durable.  The page: docs/integrations/pysyncobj.md

PySyncObj has no place to hand a journal in, but keeps it, its transport and its serializer in one
attribute each, set once.  Here those three attributes are properties of a subclass: what PySyncObj
puts in is replaced or wrapped, and its own code runs unchanged.  The one thing changed for the
whole process is pysyncobj.serializer.atomicReplace, a plain rename, which now syncs.

When the journal fails, the node stops for good: see DurableSyncObj.
"""

import copy
import logging
import os
import queue
from typing import Any

import pysyncobj.serializer
from pysyncobj import FAIL_REASON, SyncObj, SyncObjConf

from holdfast import runtime
from holdfast.disk import Disk, OsDisk
from holdfast.errors import UnsupportedError
from holdfast.integrations.pysyncobj.dumps import (
    JournalFirst,
    refuse_if_missing,
    replace_durably,
    sync_dump,
)
from holdfast.integrations.pysyncobj.journal import COMMAND_SIZE_MAX, RaftJournal
from holdfast.integrations.pysyncobj.messages import CarefulTransport

_LOG = logging.getLogger("holdfast")
_RELIED_ON = {
    "createJournal",
    "_SyncObj__raftLog",
    "_SyncObj__transport",
    "_SyncObj__serializer",
    "_SyncObj__raftLastApplied",
    "_SyncObj__commandsLocalCounter",
    "_SyncObj__commandsQueue",
    "_SyncObj__commandsWaitingCommit",
    "_SyncObj__commandsWaitingReply",
}


class DurableSyncObj(SyncObj):  # type: ignore[misc]  # PySyncObj has no types
    """Inherit from this in place of SyncObj; `conf.journalFile` names the journal's directory.

    The dump is `conf.fullDumpFile` or, if that is not set, the directory's name and ".dump".

    If a write or a sync fails, or the dump cannot be read, the node sends, votes, applies and
    acknowledges nothing any more.  `failure` says why; whoever waits for a command is told
    FAIL_REASON.UNKNOWN_OUTCOME, and new commands and doTick raise PoisonedError.  With autoTick
    the node destroys itself.  Start it again, once the disk is well: it then has all it promised.
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
        conf.journalFile = None  # so that PySyncObj makes a journal in memory, which we drop
        conf.fullDumpFile = conf.fullDumpFile or f"{directory.rstrip('/')}.dump"
        pysyncobj.serializer.atomicReplace = replace_durably
        self.__dump_path: str = conf.fullDumpFile
        self.__journal = self._open_journal(directory)
        try:
            refuse_if_missing(self.__dump_path, self.__journal)
            super().__init__(selfNode, otherNodes, conf, *args, **kwargs)
        except BaseException:
            self.__journal._destroy()
            raise
        conf.journalFile = directory
        # PySyncObj numbers its requests to the leader from 1 in every life, so that an answer to
        # one of an earlier life would pass for the answer to another command, and acknowledge it.
        self._SyncObj__commandsLocalCounter = runtime.new_id().int

    @property
    def failure(self) -> str | None:
        """Why this node has stopped; None while it runs."""
        return self.__journal.refusal

    def _open_journal(self, directory: str) -> RaftJournal:
        if os.path.isfile(directory):
            raise UnsupportedError(
                f"{directory} is a file, perhaps a FileJournal; a durable journal is a directory"
            )
        disk: Disk = OsDisk(directory)
        return RaftJournal(disk, before_cut=lambda: sync_dump(self.__dump_path))

    # What PySyncObj sets once, and uses ever after

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

    # What PySyncObj does, and how it stops

    def _SyncObj__loadDumpFile(self, clearJournal: bool) -> None:
        """PySyncObj goes on without a dump that it cannot read: with nothing in place of it."""
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
        except Exception:
            if self.__journal.refusal is not None:  # else it is PySyncObj's own affair
                self.__stop()
            raise

    def _applyCommand(self, command: bytes, callback: Any, commandType: int | None = None) -> None:
        self.__journal.refuse_if_failed()
        if len(command) >= COMMAND_SIZE_MAX:
            raise ValueError(f"a command of {len(command)} bytes; the most is {COMMAND_SIZE_MAX}")
        super()._applyCommand(command, callback, commandType)

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
    """Were one of these names another, a node would run without its journal, and nobody know."""
    serializer = pysyncobj.serializer.Serializer
    is_known = (
        _RELIED_ON.issubset(SyncObj.__init__.__code__.co_names)
        and hasattr(SyncObj, "_SyncObj__loadDumpFile")
        and "atomicReplace" in serializer.serialize.__code__.co_names
        and "atomicReplace" in serializer.setTransmissionData.__code__.co_names
    )
    if not is_known:
        version = pysyncobj.version.VERSION
        raise UnsupportedError(f"PySyncObj {version} is built differently; 0.3.17 is known to work")
