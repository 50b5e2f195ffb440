"""Holdfast can be imported everywhere, and opens stores only on Linux."""

import subprocess
import sys
from pathlib import Path

import pytest

# What Python has on Linux only, or not on Windows.
ABSENT_MODULES = ("fcntl", "resource", "termios", "pwd", "grp")
ABSENT_CALLS = (
    *("RWF_DSYNC", "pwritev", "posix_fallocate", "posix_fadvise", "fdatasync", "register_at_fork"),
    *("fork", "O_NOFOLLOW", "O_NONBLOCK", "O_DIRECTORY", "SEEK_DATA", "SEEK_HOLE", "uname"),
)

PROGRAM = f"""
import os, sys
import subprocess, sysconfig, numpy, pyarrow.compute, google.protobuf.message, obstore, asyncio
sysconfig.get_config_vars()  # other libraries know this system by now
sys.platform = sys.argv[1]
for name in {ABSENT_MODULES}:
    sys.modules[name] = None  # importing it raises ImportError
for name in {ABSENT_CALLS}:
    delattr(os, name)

import holdfast
from holdfast import doors, errors
from holdfast.disk import OsDisk
from holdfast.bucket import MemoryBucket

path = sys.argv[2]
for name in holdfast.__all__:
    getattr(holdfast, name)
calls = [getattr(doors, name) for name in doors.__all__ if name.startswith(("create_", "open_"))]
calls += [getattr(doors, name) for name in doors.__all__ if name.startswith(("read_", "find_"))]
calls += [doors.manage_kv, doors.repair_kv, OsDisk, lambda path: doors.open_kv(MemoryBucket())]
calls += [lambda path: doors.open_kv("memory://"), lambda path: doors.read_kv("s3://bucket/x")]
calls.append(lambda path: doors.convert_log(path, path + "2", "shanghai"))
for call in calls:
    try:
        call(path)
    except errors.UnsupportedError as error:
        assert "only on Linux, and this is " + sys.platform in str(error), error
    else:
        raise AssertionError(f"{{call}} has opened a store")
print(len(calls), "refused")
"""


@pytest.mark.parametrize("system", ["darwin", "win32"])
def test_elsewhere_a_store_is_refused_and_the_import_works(tmp_path: Path, system: str) -> None:
    command = [sys.executable, "-c", PROGRAM, system, str(tmp_path / "store")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "17 refused\n"
    assert not (tmp_path / "store").exists()


def test_the_command_line_says_so_in_one_line(tmp_path: Path) -> None:
    program = "import sys; from holdfast.cli.app import main; import numpy, pyarrow.compute; "
    program += "sys.platform = 'darwin'; main()"
    command = [sys.executable, "-c", program, "log", "create", str(tmp_path / "store")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("holdfast: holdfast opens stores only on Linux, and this is")
    assert done.stderr.count("\n") == 1
