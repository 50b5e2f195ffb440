"""What an operator asks, as dataclasses."""
