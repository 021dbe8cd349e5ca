import pytest

pytest.register_assert_rewrite("tests.models.refusal")
