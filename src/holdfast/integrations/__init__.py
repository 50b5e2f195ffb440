"""Holdfast under other people's programs: one package each, and one extra to install it with."""
