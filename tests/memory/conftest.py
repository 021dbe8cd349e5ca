"""What memory plans promise is counted for rows that go on token by token, unless a test drafts."""

import pytest

from bushel.engine.drafts.speculation import Speculation


@pytest.fixture(autouse=True)
def token_by_token(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with speculate="off"."""
    if "test_draft_memory" not in request.node.nodeid:
        monkeypatch.setattr("bushel.engine.build.speculation_of", lambda *_: Speculation())
