"""The examples in docstrings are run, in a directory of their own."""

import doctest
import importlib
import pkgutil
from pathlib import Path

import pytest

import holdfast

_NEEDS_MORE = ("holdfast.spark", "holdfast.demo")  # run with a session, by their own tests
MODULES = [
    name
    for _, name, _ in pkgutil.walk_packages(holdfast.__path__, "holdfast.")
    if not name.startswith(_NEEDS_MORE)
]


@pytest.mark.parametrize("name", ["holdfast", *MODULES])
def test_examples_do_what_they_say(name: str, tmp_path: Path) -> None:
    module = importlib.import_module(name)
    examples = doctest.DocTestFinder(exclude_empty=True).find(module, name)
    for number, example in enumerate(examples):
        directory = tmp_path / str(number)
        example.globs.update(holdfast=holdfast, directory=directory)
        failed, _ = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example)
        assert failed == 0, example.name
