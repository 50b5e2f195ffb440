"""Three write-ahead logs behind one small protocol."""
