"""Integrations with other programs: one package and one extra for each."""
