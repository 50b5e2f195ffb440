"""Test whether a store enforces create-if-absent: some stores ignore it silently."""

import secrets
from collections.abc import Callable

from holdfast.bucket.bucket import Bucket


def enforces_create(
    bucket: Bucket, *, token: Callable[[], str] = lambda: secrets.token_hex(16)
) -> bool:
    """Create one fresh name under `probe/` twice, and delete it."""
    name = f"probe/{token()}"
    try:
        bucket.put_if_absent(name, f"first {token()}".encode())
        try:
            bucket.put_if_absent(name, f"second {token()}".encode())
        except FileExistsError:
            return True
        return False
    finally:
        bucket.delete(name)
