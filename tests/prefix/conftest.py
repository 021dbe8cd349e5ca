"""What is reused is counted in tokens that the model runs: one for each that a reply says."""

from collections.abc import Iterator

import pytest

from bushel.engine.drafts.speculation import Speculation


@pytest.fixture(autouse=True, scope="package")
def token_by_token() -> Iterator[None]:
    """As with speculate="off": drafts are run as well, whether they hold or not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bushel.engine.build.choose_drafters", lambda *_: Speculation())
        yield
