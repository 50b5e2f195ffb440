"""What `init` writes can be run at once, and is left alone when it is there."""

from pathlib import Path

import pytest

from holdfast.spark.pipelines import read, write_template


def test_the_template_is_sound(tmp_path: Path) -> None:
    made = write_template(tmp_path / "rooms.toml")
    assert made == [str(tmp_path / "rooms.toml"), str(tmp_path / "inbox" / "sample.jsonl")]
    declared = read(made[0])
    assert (declared.name, [sink.name for sink in declared.sinks]) == (
        "rooms",
        ["warm_rooms", "archive"],
    )
    with pytest.raises(FileExistsError):
        write_template(tmp_path / "rooms.toml")
    assert write_template(tmp_path / "others.toml") == [str(tmp_path / "others.toml")]
    with pytest.raises(ValueError, match=r"name it \.toml"):
        write_template(tmp_path / "rooms.py")
