"""Three formats of write-ahead logs with one protocol: holdfast.logs.log."""
