"""How the acts are told on a console: titles, lines, verdicts and progress."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.text import Text


class Stage:
    def __init__(self, console: Console) -> None:
        self.console = console
        self._acts = 0

    def title(self, words: str) -> None:
        self._acts += 1
        self.console.print(f"\n[bold cyan]{self._acts}[/]  [bold]{words}[/]")

    def say(self, words: str, style: str = "") -> None:
        self._print(Text("   "), Text(words, style))

    def verdict(self, good: bool, words: str) -> None:
        sign = Text("✓", "bold green") if good else Text("✗", "bold red")
        self._print(Text.assemble("   ", sign, " "), Text(words))

    def _print(self, lead: Text, words: Text) -> None:
        """What does not fit into a line goes on below its words, not below the lead."""
        for line in words.wrap(self.console, max(1, self.console.width - len(lead))):
            line.rstrip()
            self.console.print(Text.assemble(lead, line))
            lead = Text(" " * len(lead))

    @contextmanager
    def progress(self) -> Iterator[Progress]:
        columns = (TextColumn("  {task.description:<12}"), BarColumn(), TaskProgressColumn())
        hidden = not self.console.is_terminal
        with Progress(
            *columns, TimeElapsedColumn(), console=self.console, transient=True, disable=hidden
        ) as progress:
            yield progress
