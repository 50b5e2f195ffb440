"""A bbolt file: buckets of sorted keys on pages.  The page: docs/formats/bolt.md"""

from holdfast.formats.bolt.pages import Bucket, Image, meta_pages
from holdfast.formats.bolt.reading import decode, decode_newest
from holdfast.formats.bolt.writing import Commit, commit, encode

__all__ = ["Bucket", "Commit", "Image", "commit", "decode", "decode_newest", "encode", "meta_pages"]
