"""What a campaign is made of: jobs of a few seconds, each decided by its seed.

A job raises if a promise is broken.  Its counts say what it did.
"""

import math
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from random import Random

from tests.fault_proxy import FaultProxy
from tests.interop import test_bolt as bbolt
from tests.kv.service import bucket_server, serve
from tests.testing.test_full_disk import STORES as FULL
from tests.testing.test_harms import harm_bars, harm_logs
from tests.testing.test_log_simulation import opener

from campaign import peers
from campaign.kv_load import sustained
from campaign.service import feed
from campaign.service import serve as serve_log
from campaign.soak import soak
from holdfast.testing.actors import SimulationReport
from holdfast.testing.bars_simulation import BarsSimulation
from holdfast.testing.damages import CLOSED, KILLED, OUTCOMES, Damages
from holdfast.testing.full_disk import FullDisks
from holdfast.testing.fuzz import TARGETS, Fuzz
from holdfast.testing.harms import POWER_CUT
from holdfast.testing.kv_simulation import MODES, Mode, Simulation
from holdfast.testing.lives import BrokenPromiseError
from holdfast.testing.log_simulation import LIVES, LogSimulation
from holdfast.testing.owners.rounds import OwnerRounds
from holdfast.testing.owners.stores import KINDS
from holdfast.testing.repairs import Repairs
from holdfast.testing.torture import LOGS, DiskCrashes, TortureReport, kill_rounds

Run = Callable[[int, Path, float], Counter[str]]  # seed, an empty directory, how much


@dataclass(frozen=True, slots=True)
class Job:
    """One kind of test of one store.  `unit` is the count that matters, `aim` how many of it."""

    kind: str
    store: str
    unit: str
    run: Run
    aim: int
    weight: float = 1.0  # its share of the time
    missing: Callable[[], str] = lambda: ""  # why it cannot be run here

    @property
    def name(self) -> str:
        return f"{self.kind}/{self.store}"


def _images(format: str, seed: int, place: Path, size: float) -> Counter[str]:
    crashes, report = DiskCrashes(format, seed), TortureReport(format, seed, 0.0)
    for step in islice(crashes.slices(), max(2, int(60 * size))):
        step()
    crashes.count(report)
    counts = {"images": report.images, "acknowledged": report.simulated_acknowledged}
    return Counter({**counts, "faults fired": sum(report.faults.values())})


def _kv_steps(mode: Mode, seed: int, place: Path, size: float) -> Counter[str]:
    seeds = range(1000 * seed, 1000 * seed + max(1, int(10 * size)))
    return sum((_judged(Simulation(one, mode).run()) for one in seeds), Counter())


def _bar_steps(seed: int, place: Path, size: float) -> Counter[str]:
    seeds = range(1000 * seed, 1000 * seed + max(1, int(4 * size)))
    return sum((_judged(BarsSimulation(one, brief=one % 4 == 0).run()) for one in seeds), Counter())


def _judged(report: SimulationReport) -> Counter[str]:
    counts = {"steps": report.steps, "states compared": report.judged}
    return Counter({**counts, "acknowledged": report.acknowledged})


def _log_lives(format: str, seed: int, place: Path, size: float) -> Counter[str]:
    found: Counter[str] = Counter()
    for number in range(max(1, int(20 * size))):
        simulation = LogSimulation(1000 * seed + number, opener(format))
        simulation.run()
        found += Counter({"lives": LIVES, "acknowledged": len(simulation.ledger.acknowledged)})
    return found


def _kills(format: str, seed: int, place: Path, size: float) -> Counter[str]:
    rounds = kill_rounds(format, place / "store", seed)
    random, outcomes = Random(seed), dict.fromkeys(OUTCOMES, 0)
    damages, acknowledged = Damages(rounds, random, outcomes), 0
    try:
        for _ in range(max(1, int(4 * size))):
            rounds.start()
            if not rounds.acknowledges():
                raise BrokenPromiseError("hidden", "a writer acknowledged nothing")
            rounds.hear(int(random.expovariate(1 / 100)))
            rounds.kill()
            acknowledged += rounds.acknowledged
            damages.one(KILLED)
            rounds.check()
            damages.one(CLOSED)
    finally:
        rounds.stop()
    counts = {"kills": rounds.kills, "acknowledged": acknowledged}
    return Counter({**counts, "damaged copies": sum(outcomes.values())})


def _owners(format: str, seed: int, place: Path, size: float) -> Counter[str]:
    lives = OwnerRounds(format, place, turn=seed)
    try:
        lives.start()
        lives.judge()
    finally:
        lives.stop()
    return Counter({"lives": 1})


def _full_disk(store: str, seed: int, place: Path, size: float) -> Counter[str]:
    make, sequence = FULL[store]
    explorer = make()
    explorer.seed = seed
    disks = FullDisks(explorer, has_reserve=seed % 3 != 2, has_quota=seed % 3 == 1)
    disks.explore(*sequence, first=seed % 2, step=2)
    fired = explorer.fired
    found = {name: fired[name] for name in ("opened", "read-only", "way out")}
    return Counter({"disks": fired["full"] + fired["quota"], **found})


def _harm(store: str, seed: int, place: Path, size: float) -> Counter[str]:
    harmed = harm_bars if store == "bars" else partial(harm_logs, store)
    fired = harmed(range(3 * seed, 3 * seed + 3)).fired
    images = {state: fired[state] for state in (KILLED, POWER_CUT, CLOSED)}
    return Counter({"images": sum(images.values()), **images})


def _repairs(format: str, seed: int, place: Path, size: float) -> Counter[str]:
    trials, count = Repairs(format), max(20, int(400 * size))
    for number in range(count * seed, count * (seed + 1)):
        trials.trial(number)
    return Counter({"repairs": trials.counts["repairs"], "trials": trials.counts["trials"]})


def _mutants(target: str, seed: int, place: Path, size: float) -> Counter[str]:
    count = 2000 if target in (*LOGS, "bars") else 20_000
    found = Fuzz(target, seed).run(max(50, int(count * size)))
    return Counter({"mutants": found.total(), "refused": found["refused"]})


def _sequence(
    run: Callable[[int, Path], None], seed: int, place: Path, size: float
) -> Counter[str]:
    run(seed, place)
    return Counter({"sequences": 1})


def _soak(format: str, seed: int, place: Path, size: float) -> Counter[str]:
    return soak(format, place, size)


def _service(format: str, seed: int, place: Path, size: float) -> Counter[str]:
    return serve_log(format, place, size, seed)


def _feed(seed: int, place: Path, size: float) -> Counter[str]:
    return feed(place, size, seed)


def _kv_load(seed: int, place: Path, size: float) -> Counter[str]:
    return sustained(place, max(1.0, size))


def _kv_service(records: str, seed: int, place: Path, size: float) -> Counter[str]:
    cas = f"sqlite://{place}/records.db" if records else None
    seconds = max(2.0, size)
    with bucket_server(place) as port, FaultProxy(port, seed, rate=0.05) as proxy:
        counts = serve(proxy, place, seed, seconds, cas)
    return counts + Counter({"seconds": math.ceil(seconds)})


def _no_server() -> str:
    beside = str(Path(sys.executable).parent)
    found = shutil.which("moto_server", path=beside) or shutil.which("moto_server")
    return "" if found else "moto_server is not installed: pip install 'moto[server]'"


def _all() -> list[Job]:
    million = 10**6
    jobs = [
        Job("images", format, "images", partial(_images, format), 10 * million, weight=6)
        for format in (*LOGS, "bars")
    ]
    jobs += [
        Job("simulation", f"kv {mode}", "steps", partial(_kv_steps, mode), million, weight=3)
        for mode in MODES
    ]
    jobs.append(Job("simulation", "bars", "steps", _bar_steps, million, weight=2))
    jobs += [
        Job("simulation", format, "lives", partial(_log_lives, format), 100_000) for format in LOGS
    ]
    jobs += [
        Job("kills", format, "kills", partial(_kills, format), 10_000, weight=3) for format in KINDS
    ]
    jobs += [Job("owners", format, "lives", partial(_owners, format), 100) for format in KINDS]
    for store in FULL:
        jobs.append(Job("full disk", store, "disks", partial(_full_disk, store), 100_000))
        jobs.append(Job("harm", store, "images", partial(_harm, store), 100_000))
    jobs += [
        Job("repairs", format, "repairs", partial(_repairs, format), million // 10)
        for format in LOGS
    ]
    jobs += [
        Job("fuzz", target, "mutants", partial(_mutants, target), million) for target in TARGETS
    ]
    jobs += [
        Job("peers", name, "sequences", partial(_sequence, run), 1000, missing=missing)
        for name, run, missing in (
            ("zmq-raft in turns", peers.zmq_raft_turns, peers.no_zmq_raft),
            ("zmq-raft with kills", peers.zmq_raft_duel, peers.no_zmq_raft),
            ("zmq-raft byte by byte", peers.zmq_raft_twins, peers.no_zmq_raft),
            ("bbolt", peers.bbolt_turns, bbolt.missing),
            ("slatedb", peers.slatedb_twins, peers.no_slatedb),
        )
    ]
    jobs += [
        Job("service", format, "acknowledged", partial(_service, format), million)
        for format in LOGS
    ]
    jobs.append(Job("service", "bars", "acknowledged", _feed, million // 10))
    jobs += [Job("soak", format, "seconds", partial(_soak, format), 3600) for format in KINDS]
    jobs.append(Job("soak", "kv under load", "seconds", _kv_load, 3600))
    jobs += [
        Job("soak", name, "seconds", partial(_kv_service, records), 3600, missing=_no_server)
        for name, records in (("kv service", ""), ("kv service, two-phase", "sqlite"))
    ]
    return jobs


JOBS: dict[str, Job] = {job.name: job for job in _all()}
