from tests.bars.conftest import golden

__all__ = ["golden"]
