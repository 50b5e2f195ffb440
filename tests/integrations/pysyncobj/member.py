"""A node of a cluster in a process of its own.  python member.py DIRECTORY ADDRESS OTHER...

It says when it is ready, takes lines on its standard input and answers on its standard output, one
line each, written whole by one system call:

    put WORD      "ack WORD", once it is acknowledged; "no WORD" if it is not
    state         "state INDEX TERM WORD,WORD,..." as applied here so far
"""

import logging
import os
import sys
from pathlib import Path

from pysyncobj import FAIL_REASON, SyncObjConf, replicated

from holdfast.integrations.pysyncobj import DurableSyncObj


class Member(DurableSyncObj):
    def __init__(self, directory: Path, address: str, others: list[str]) -> None:
        conf = SyncObjConf(
            journalFile=str(directory / "journal"),
            bindAddress=address,
            autoTickPeriod=0.01,
            appendEntriesPeriod=0.04,
            raftMinTimeout=0.4,
            raftMaxTimeout=1.0,
            connectionTimeout=1.5,
            connectionRetryTime=0.05,
            bindRetryTime=0.05,
            logCompactionMinEntries=60,
            logCompactionMinTime=100,
        )
        super().__init__(address, others, conf)
        self.words: list[str] = []

    @replicated  # type: ignore[untyped-decorator]
    def put(self, word: str) -> None:
        self.words.append(word)


def main() -> None:
    logging.basicConfig(level=logging.ERROR)
    directory, address, *others = sys.argv[1:]
    member = Member(Path(directory), address, others)
    say("ready")
    for line in sys.stdin:
        verb, _, word = line.strip().partition(" ")
        if verb == "put":
            put(member, word)
        else:
            words = list(member.words)
            say(f"state {member.raftLastApplied} {member.raftCurrentTerm} {','.join(words)}")


def put(member: Member, word: str) -> None:
    def hear(_: object, reason: int) -> None:
        say(f"{'ack' if reason == FAIL_REASON.SUCCESS else 'no'} {word}")

    member.put(word, callback=hear)


def say(line: str) -> None:
    os.write(sys.stdout.fileno(), f"{line}\n".encode())


if __name__ == "__main__":
    main()
