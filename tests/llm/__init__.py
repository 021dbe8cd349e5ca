import pytest

pytest.register_assert_rewrite("tests.llm.request_builders")
