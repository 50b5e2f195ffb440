"""The kv store's manifest: one state of the store, pure bytes.  The page: docs/formats/manifest.md

decode_manifest(data) and encode_manifest(manifest, unique_id) are the codec; Manifest is what the
stores read, `manifest.edit()` a Draft to change and freeze, `describe(id, info)` an SST's entry.
"""

from holdfast.formats.manifest.checks import BASE_STEP, EPOCH_MAX
from holdfast.formats.manifest.codec import decode_manifest, encode_manifest
from holdfast.formats.manifest.draft import Draft, describe
from holdfast.formats.manifest.manifest_pb2 import (
    Job,
    JobKind,
    Snapshot,
    SstInfo,
    Transaction,
    Writer,
)
from holdfast.formats.manifest.view import Manifest, Run

__all__ = [
    "BASE_STEP",
    "EPOCH_MAX",
    "Draft",
    "Job",
    "JobKind",
    "Manifest",
    "Run",
    "Snapshot",
    "SstInfo",
    "Transaction",
    "Writer",
    "decode_manifest",
    "describe",
    "encode_manifest",
]
