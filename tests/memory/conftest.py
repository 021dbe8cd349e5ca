"""What memory plans promise is counted for rows that go on token by token, unless a test drafts.

Some tests run once more with drafts, as engines do that nobody tells otherwise.
"""

import pytest

from bushel.engine.drafts.speculation import Speculation

# Quick ones, of growth, rows that yield and what they leave behind.
DRAFTED = {
    "test_a_reply_is_cut_where_memory_ends",
    "test_choices_of_a_request_decode_as_memory_allows",
    "test_many_requests_leave_nothing_behind",
    "test_many_who_ask_for_much_and_use_little_run_at_once",
    "test_no_traffic_empties_it_either",
    "test_one_that_is_here_runs_to_its_end_and_the_next_one_is_refused",
    "test_the_state_of_real_rows_is_as_predicted",
    "test_what_a_row_left_in_the_tree_is_not_computed_again",
}
# Longer ones.
DRAFTED_AT_TIMES = {
    "test_a_flood_beyond_memory_all_finishes_under_the_limit",
    "test_replies_that_have_less_memory_are_the_same_and_the_limit_holds",
    "test_what_is_kept_gives_way_to_a_reply_that_grows",
    "test_whoever_yielded_comes_back_before_anyone_new",
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    name = metafunc.function.__name__
    if name in DRAFTED:
        metafunc.parametrize("speculating", ["off", "auto"], indirect=True)
    elif name in DRAFTED_AT_TIMES:
        auto = pytest.param("auto", marks=pytest.mark.long)
        metafunc.parametrize("speculating", ["off", auto], indirect=True)


@pytest.fixture(autouse=True)
def speculating(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with speculate="off", where no test asks for more."""
    drafts = getattr(request, "param", "off") == "auto"
    if not drafts and "test_draft_memory" not in request.node.nodeid:
        monkeypatch.setattr("bushel.engine.build.choose_drafters", lambda *_: Speculation())
