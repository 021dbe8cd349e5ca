import pytest

pytest.register_assert_rewrite("tests.models.refused_checkpoints")
