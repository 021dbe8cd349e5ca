"""Drafts that are found in the prompt and in the reply so far."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from bushel.core import GenerationDefaults, Media, Prepared, Request, SamplingParams
from bushel.core.params import resolve
from bushel.engine.drafts.drafter import Drafter, KeptRound
from bushel.engine.drafts.lookup import PromptLookup
from bushel.engine.prefilled_row import PrefilledRow
from bushel.engine.sequence import Sequence
from bushel.models import Prompt

END = 99
FUNCTION = list(range(10, 40))  # a passage without repetitions


def reply_to(
    prompt: list[int],
    said: list[int] | None = None,
    params: SamplingParams | None = None,
    media: tuple[Media, ...] = (),
    prediction: tuple[int, ...] = (),
) -> Sequence:
    params = params or SamplingParams(max_tokens=500)
    decoding = resolve(params, GenerationDefaults(), vocab=100, end_ids=frozenset({END}))
    request = Request("r", Prepared(tuple(prompt), media=media, prediction=prediction), (decoding,))
    sequence = Sequence.start(request, 0, lambda *_: "", None)
    sequence.tokens += said or []
    return sequence


def joined(*sequences: Sequence) -> PromptLookup:
    lookup = PromptLookup(deepest=7)
    rows = [
        PrefilledRow(each, Prompt(each.request.prompt.ids), len(each.request.prompt.ids) - 1, [])
        for each in sequences
    ]
    lookup.join(rows)
    return lookup


def say(lookup: PromptLookup, sequence: Sequence, *tokens: int) -> None:
    sequence.add(tokens)
    lookup.kept(KeptRound([len(tokens)]))


def test_a_reply_that_copies_the_prompt_is_drafted() -> None:
    sequence = reply_to([1, 2, *FUNCTION, 3])
    lookup: Drafter = joined(sequence)
    assert lookup.chances() == [[]]
    sequence.add((10, 11))
    [chances] = lookup.chances()
    assert len(chances) == 7
    assert all(0 < chance < 1 for chance in chances)
    assert lookup.propose([4]) == [[12, 13, 14, 15]]
    assert lookup.propose([0]) == [[]]
    lookup.check_integrity()


def test_the_longer_it_copies_the_surer_it_is() -> None:
    sequence = reply_to([1, 2, *FUNCTION, 3])
    lookup = joined(sequence)
    say(lookup, sequence, *FUNCTION[:2])
    [early] = lookup.chances()
    say(lookup, sequence, *FUNCTION[2:20])
    [late] = lookup.chances()
    assert all(after > before for before, after in zip(early, late, strict=True))
    assert late[-1] > 0.3


def test_a_reply_that_says_otherwise_each_time_is_drafted_less_and_less() -> None:
    prompt = [token for pair in range(20) for token in (1, 2, 40 + pair)]
    sequence = reply_to(prompt)
    lookup = joined(sequence)
    firsts = []
    for pair in range(10):
        say(lookup, sequence, 1, 2)
        firsts.append(lookup.chances()[0][0])
        say(lookup, sequence, 60 + pair)
    assert firsts[-1] < firsts[0] / 2
    assert firsts == sorted(firsts, reverse=True)


def test_rows_come_and_go() -> None:
    one, two = reply_to([1, *FUNCTION], [10, 11]), reply_to([1, *FUNCTION], [20, 21])
    lookup = joined(one, two)
    assert lookup.propose([1, 2]) == [[12], [22, 23]]
    lookup.leave([1])
    assert lookup.propose([2]) == [[22, 23]]
    lookup.join([PrefilledRow(one, Prompt(one.request.prompt.ids), 0, [])])
    assert lookup.propose([1, 1]) == [[22], [12]]
    lookup.leave([])
    assert lookup.chances() == []


@given(st.lists(st.integers(0, 4), max_size=30), st.lists(st.integers(0, 4), max_size=60))
def test_a_row_that_was_rebuilt_goes_on_as_if_it_had_stayed(
    prompt: list[int], said: list[int]
) -> None:
    stayed = reply_to([5, *prompt])
    lookup = joined(stayed)
    for token in said:
        say(lookup, stayed, token)
    rebuilt = joined(reply_to([5, *prompt], said))
    assert rebuilt.chances() == lookup.chances()
    depths = [len(chances) for chances in lookup.chances()]
    assert rebuilt.propose(depths) == lookup.propose(depths)


def test_what_would_end_the_reply_is_not_drafted_nor_anything_behind_it() -> None:
    prompt = [1, 2, 10, 11, 12, END, 13]
    assert joined(reply_to(prompt, [10, 11])).propose([5]) == [[12]]
    assert joined(reply_to(prompt, [11, 12])).chances() == [[]]
    on = SamplingParams(max_tokens=500, ignore_eos=True)
    assert joined(reply_to(prompt, [10, 11], on)).propose([3]) == [[12, END, 13]]


def test_no_more_is_drafted_than_the_reply_may_say() -> None:
    prompt = [1, *FUNCTION]
    for limit, most in ((2, 0), (3, 0), (4, 1), (6, 3)):
        sequence = reply_to(prompt, [10, 11], SamplingParams(max_tokens=limit))
        assert len(joined(sequence).chances()[0]) == most


def test_a_request_that_wants_no_drafts_has_none() -> None:
    quiet = SamplingParams(max_tokens=500, speculate=False)
    one, two = reply_to([1, *FUNCTION], [10, 11], quiet), reply_to([1, *FUNCTION], [10, 11])
    lookup = joined(one, two)
    assert [len(chances) for chances in lookup.chances()] == [0, 7]
    assert lookup.propose([0, 1]) == [[], [12]]


def test_what_stands_for_an_image_is_not_drafted() -> None:
    prompt = [1, 2, 50, 50, 50, 3, 4]
    image = (Media(2, 5, "0" * 64),)
    assert joined(reply_to(prompt, [1, 2])).propose([3]) == [[50, 50, 50]]
    assert joined(reply_to(prompt, [1, 2], media=image)).chances() == [[]]


def test_a_reply_begins_with_what_it_is_thought_to_repeat() -> None:
    predicted = tuple(FUNCTION)
    sequence = reply_to([1, 2, 3], prediction=predicted)
    lookup = joined(sequence)
    assert lookup.propose([3]) == [[10, 11, 12]]
    say(lookup, sequence, 10, 11, 50)  # a change
    assert lookup.chances() == [[]]
    say(lookup, sequence, 13, 14)  # and back
    assert lookup.propose([2]) == [[15, 16]]
    say(lookup, sequence, *FUNCTION[5:29])
    assert lookup.propose([7]) == [[39]]  # the prompt is another text


def test_events_tell_what_was_drafted_and_what_of_it_held() -> None:
    sequence = reply_to([1])
    event = sequence.add((5, 6, 7), drafted=4)
    assert (event.drafted, event.accepted) == (4, 2)
    event = sequence.add((8,))
    assert (event.drafted, event.accepted) == (0, 0)
    event = sequence.add((5, END, 7, 8), drafted=3)
    assert event.token_ids == (5, END)
    assert (event.drafted, event.accepted) == (3, 2)


def test_the_record_of_a_drafter_stays_with_the_reply() -> None:
    sequence = reply_to([1])
    sequence.accepted_from("mtp", 0.75).count(3, False)
    chance = sequence.accepted_from("mtp", 0.75).chance
    assert chance > 0.75
    assert sequence.accepted_from("draft", 0.5).chance == 0.5
    assert replace(sequence).accepted_from("mtp", 0.75).chance == chance
