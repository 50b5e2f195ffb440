"""A kv store's manifests as they came: who wrote them, and what they say."""

from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.bucket import Bucket
from holdfast.kv.manifests import ManifestStore
from holdfast.kv.names import MANIFESTS, id_of
from holdfast.runtime import Runtime


@dataclass(frozen=True, slots=True)
class Moment:
    """One manifest."""

    id: int
    at_ms: int  # by the store's clock
    writer_epoch: int
    compactor_epoch: int
    l0: int
    runs: int
    ssts: int  # in all levels
    snapshots: tuple[int, ...]  # the manifests that they are of
    jobs: int
    batches: int  # that streams have committed


def moments_of(bucket: Bucket, known: Iterable[Moment] = ()) -> list[Moment]:
    """All manifests that are there or were known before, from the oldest on."""
    found = {moment.id: moment for moment in known}
    store = ManifestStore(bucket, Runtime())
    for info in bucket.list(MANIFESTS):
        number = id_of(info.name)
        if number is None or number in found:
            continue
        manifest = store.get(number)
        found[number] = Moment(
            id=number,
            at_ms=info.modified_ms,
            writer_epoch=manifest.writer_epoch,
            compactor_epoch=manifest.compactor_epoch,
            l0=manifest.l0_count,
            runs=len(manifest.runs),
            ssts=manifest.l0_count + sum(len(run) for run in manifest.runs),
            snapshots=tuple(sorted(one.manifest_id for one in manifest.snapshots)),
            jobs=len(manifest.jobs),
            batches=sum(one.batch_id + 1 for one in manifest.transactions),
        )
    return [found[number] for number in sorted(found)]
