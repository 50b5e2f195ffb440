"""What all campaigns so far have counted, in a file that is replaced whole."""

import json
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILE = ROOT / "campaign" / "figures.json"


@dataclass(slots=True)
class Figures:
    """Of one job.  Seeds below `next_seed` were given out; an interrupted one is not repeated."""

    next_seed: int = 0
    jobs: int = 0
    seconds: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Failure:
    """A job that broke a promise.  `passed` is the date of a repetition that did not."""

    job: str
    seed: int
    size: float
    what: str
    date: str
    version: str
    passed: str = ""

    @property
    def again(self) -> str:
        return f"python -m campaign --repeat '{self.job}' --seed {self.seed} --size {self.size:g}"


@dataclass(slots=True)
class Session:
    """One run of a campaign."""

    date: str
    hours: float
    jobs: int
    failures: int
    version: str
    machine: str


@dataclass(slots=True)
class State:
    """All figures.  They add up over runs."""

    jobs: dict[str, Figures] = field(default_factory=dict)
    runs: list[Session] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)

    def of(self, job: str) -> Figures:
        return self.jobs.setdefault(job, Figures())

    def give_seed(self, job: str) -> int:
        """Return a seed that no run has used."""
        figures = self.of(job)
        figures.next_seed += 1
        return figures.next_seed - 1

    def add(self, job: str, counts: dict[str, int], seconds: float) -> None:
        figures = self.of(job)
        figures.jobs += 1
        figures.seconds = round(figures.seconds + seconds, 3)
        figures.counts = dict(Counter(figures.counts) + Counter(counts))

    def save(self, path: Path) -> None:
        """Replace the file: an interrupted campaign leaves the old one or the new one."""
        text = json.dumps(asdict(self), indent=1) + "\n"
        beside = path.with_suffix(".new")
        beside.write_text(text)
        beside.replace(path)


def load(path: Path) -> State:
    """Return the figures in a file; none if there is no file."""
    if not path.exists():
        return State()
    document = json.loads(path.read_text())
    return State(
        {name: Figures(**figures) for name, figures in document["jobs"].items()},
        [Session(**run) for run in document["runs"]],
        [Failure(**failure) for failure in document["failures"]],
    )
