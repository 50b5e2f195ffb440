"""Read the file of a pipeline as tables: TOML, or a Python module with a `Pipeline`.

Both give the same tables, which `checking` checks by the same rules.
"""

import importlib
import importlib.util
import sys
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from holdfast.spark.pipelines.declared import InvalidError, Problem

Function = TypeVar("Function", bound=Callable[..., Any])


class Pipeline:
    """A pipeline declared in Python.

        pipeline = Pipeline("ticks", checkpoint="state/ticks")
        pipeline.source("ticks", format="holdfast-log", path="ticks-log")

        @pipeline.step
        def prices(ticks):  # a parameter is a source or an earlier step; all are DataFrames
            return ticks.where("price > 0")

        pipeline.sink("out", view="prices", format="parquet", path="out")

    The keys are those of the TOML file; a sink's `from` is called `view` here.
    """

    def __init__(self, name: str, *, checkpoint: str, **keys: Any) -> None:
        self.tables: dict[str, Any] = {"name": name, "checkpoint": checkpoint, **keys}

    def source(self, name: str, **keys: Any) -> None:
        self._add("source", name, keys)

    def table(self, name: str, **keys: Any) -> None:
        self._add("table", name, keys)

    def step(self, function: Function) -> Function:
        """Declare a function as a step, with its name."""
        self._add("step", function.__name__, {"function": function})
        return function

    def sql(self, name: str, sql: str, **keys: Any) -> None:
        """Declare a query as a step."""
        self._add("step", name, {"sql": sql, **keys})

    def sink(self, name: str, *, view: str, **keys: Any) -> None:
        self._add("sink", name, {"from": view, **keys})

    def _add(self, kind: str, name: str, keys: Mapping[str, Any]) -> None:
        tables = self.tables.setdefault(kind, {})
        if name in tables:
            raise ValueError(f"use another name for the {kind}: there is a {name!r} already")
        tables[name] = dict(keys)


def read_tables(path: str | Path) -> dict[str, Any]:
    """Return the tables of a file.  InvalidError if it is not valid TOML or Python."""
    file = Path(path)
    if file.suffix not in (".toml", ".py"):
        raise _invalid(file, "name it .toml or .py: a pipeline is TOML or a Python module")
    try:
        file.stat()
    except FileNotFoundError as error:
        new = file.with_suffix(".toml")
        raise FileNotFoundError(
            f"{file} does not exist; `holdfast pipeline init {new}` writes one"
        ) from error
    if file.suffix == ".py":
        return _from_python(file)
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise _invalid(file, f"correct the TOML: {error}") from error


def find_function(path: str | Path, reference: str) -> Callable[..., Any]:
    """Return the function `module:name`; the module is a file beside the pipeline's, or installed.

    ValueError if the reference is not valid.
    """
    name, _, attribute = reference.partition(":")
    beside = Path(path).parent / f"{name.replace('.', '/')}.py"
    try:
        module = load(beside) if beside.is_file() else importlib.import_module(name)
    except Exception as error:
        raise ValueError(f"{name} cannot be imported: {error!r}") from error
    function = getattr(module, attribute, None)
    if callable(function):
        return function  # type: ignore[no-any-return]
    raise ValueError(f"{name} has no function {attribute!r}")


def load(file: Path) -> ModuleType:
    """Run a file as a module.  Its functions are pickled by value: workers cannot import it."""
    name = f"holdfast_pipeline_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot load {file} as a Python module")
    module = importlib.util.module_from_spec(spec)
    before = sys.modules.get(name)
    sys.modules[name] = module
    sys.path.insert(0, str(file.parent))
    try:
        spec.loader.exec_module(module)
    except BaseException:
        if before is not None:
            sys.modules[name] = before
        raise
    finally:
        sys.path.remove(str(file.parent))
    return module


def _from_python(file: Path) -> dict[str, Any]:
    try:
        module = load(file)
    except Exception as error:
        raise _invalid(file, f"the module fails: {error!r}") from error
    found = [value for value in vars(module).values() if isinstance(value, Pipeline)]
    if len(found) != 1:
        raise _invalid(file, f"the module needs one variable with a Pipeline, not {len(found)}")
    return found[0].tables


def _invalid(file: Path, what: str) -> InvalidError:
    return InvalidError([Problem(str(file), "", what)])
