"""A log kept as HashiCorp's raft-wal keeps it: segments, and a bbolt file that knows them."""
