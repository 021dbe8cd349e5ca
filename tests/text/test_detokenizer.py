"""From token ids to the text a client sees, for any text, any tokens and any stop strings."""

from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Fast
from tokenizers import decoders, models, normalizers
from tokenizers.pre_tokenizers import ByteLevel
from transformers import PreTrainedTokenizerFast

from bushel.chat.reply.choice_text import ChoiceText
from bushel.core import (
    Choice,
    Decoding,
    Event,
    GenerationDefaults,
    Output,
    Prepared,
    Request,
    SamplingParams,
)
from bushel.core.checkpoint import Checkpoint
from bushel.core.params import resolve
from bushel.engine.sequence import Sequence as Row
from bushel.llm import Handle
from bushel.text.detokenizer import Detokenizer, OutputProcessor, StopMatcher
from bushel.text.tokenizer import Tokenizer
from tests.depth import some
from tests.families.checkpoint import IM_END, SPECIAL, VOCAB, write_tokenizer

BROKEN = "\ufffd"
SAMPLES = [
    "plain text, nothing else",
    "naïve café — œuf “quoted” …",
    "今天天气很好,我们去公园散步吧。東京の朝は静かです。 안녕하세요",
    "مرحبا بالعالم، كيف الحال؟ שלום עולם",
    "👍 👍🏽 👩‍🌾 👨‍👩‍👧‍👦 🏳️‍🌈 🇫🇷🇩🇪🇯🇵 ❤️‍🔥 😀😂",
    "e\u0301 \u0301 नमस्ते ไทย 𐍈𐍂 \U0010ffff",
    " leading,  double   spaces \n\n\ttabs ",
    f"a real {BROKEN} replacement character{BROKEN}",
]
WORDS = [word for sample in SAMPLES for word in sample.split(" ")]
text = st.text(max_size=40) | st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join)
quick = settings(
    derandomize=True,
    max_examples=some(100),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def wrapped(hf: PreTrainedTokenizerFast) -> Tokenizer:
    return Tokenizer(hf, Checkpoint(Path(), {}, {}, {}, frozenset()))


def byte_level(path: Path) -> Tokenizer:
    """Bytes as letters, as in GPT-2, Llama 3 and Qwen."""
    return wrapped(write_tokenizer(path))


def byte_fallback(path: Path) -> Tokenizer:
    """Words that carry their space, and bytes for the rest, as in Llama 2, Mistral and Gemma."""
    letters = ["▁", *"abcdefghijklmnopqrstuvwxyz,.é今天"]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *letters]
    ids = {token: at for at, token in enumerate(tokens)}
    fast = Fast(models.BPE(ids, [], byte_fallback=True, unk_token="<unk>"))
    fast.add_special_tokens(["<unk>", "<s>", "</s>"])
    fast.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    fast.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    hf = PreTrainedTokenizerFast(
        tokenizer_object=fast, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )
    return wrapped(hf)


@pytest.fixture(scope="module", params=[byte_level, byte_fallback], ids=lambda it: it.__name__)
def tokenizer(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Tokenizer:
    make: Callable[[Path], Tokenizer] = request.param
    return make(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="module")
def bytewise(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return byte_level(tmp_path_factory.mktemp("tokenizer"))


def deltas(decode: Callable[[Sequence[int]], str], ids: Sequence[int]) -> Iterator[str]:
    detokenizer = Detokenizer(decode)
    for token in ids:
        yield detokenizer.add(token)
    yield detokenizer.finish()


# -- whole characters ----------------------------------------------------------------------


@quick
@given(said=text)
def test_streamed_text_equals_the_text_at_once_and_characters_arrive_whole(
    tokenizer: Tokenizer, said: str
) -> None:
    """No client ever sees half a character. B20."""
    ids = tokenizer.encode(said, add_special_tokens=False)
    whole = tokenizer.decode(ids)
    parts = list(deltas(tokenizer.decode, ids))
    assert "".join(parts) == whole
    assert BROKEN in whole or not any(BROKEN in part for part in parts)


@pytest.mark.parametrize("said", SAMPLES)
def test_a_character_arrives_with_its_last_token(tokenizer: Tokenizer, said: str) -> None:
    """Nothing is held longer than it must be. B20."""
    said = said.replace(BROKEN, "?")
    ids = tokenizer.encode(said, add_special_tokens=False)
    shown = ""
    for at, part in enumerate(deltas(tokenizer.decode, ids), 1):
        shown += part
        so_far = tokenizer.decode(ids[:at])
        assert shown == so_far or BROKEN in so_far


def test_control_decoding_each_token_by_itself_breaks_characters(tokenizer: Tokenizer) -> None:
    for said in SAMPLES[2:5]:
        ids = tokenizer.encode(said, add_special_tokens=False)
        parts = [tokenizer.decode([token]) for token in ids]
        assert "".join(parts) != tokenizer.decode(ids)
        assert any(BROKEN in part for part in parts)


@quick
@given(ids=st.lists(st.integers(0, VOCAB - 1), max_size=16))
def test_any_tokens_at_all_give_the_text_they_decode_to(
    bytewise: Tokenizer, ids: list[int]
) -> None:
    """A model may say anything, special tokens and half characters included.

    Beyond 16 tokens without one whole character, what is unfinished is let go. B20, B21.
    """
    said = "".join(deltas(bytewise.decode, ids))
    assert said == bytewise.decode(ids)
    assert not any(special in said for special in SPECIAL)


@quick
@given(ids=st.lists(st.integers(0, 290), max_size=60))
def test_any_bytes_at_all_are_survived(tokenizer: Tokenizer, ids: list[int]) -> None:
    shown = "".join(deltas(tokenizer.decode, ids))
    assert not any(special in shown for special in (*SPECIAL, "<s>", "</s>"))


def test_a_space_survives_any_number_of_special_tokens_before_it(tmp_path: Path) -> None:
    """With `ignore_eos`; this tokenizer drops a space at the start of what it decodes. B20."""
    tokenizer = byte_fallback(tmp_path)
    ids = tokenizer.encode("ab cd", add_special_tokens=False)
    ids[3:3] = list(tokenizer.end_ids)[:1] * 40
    assert "".join(deltas(tokenizer.decode, ids)) == tokenizer.decode(ids) == "ab cd"


def byte_tokens(tokenizer: Tokenizer, said: str) -> list[int]:
    """The text as one token per byte."""
    letters, _ = ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(said)[0]
    return [tokenizer.hf.convert_tokens_to_ids(letter) for letter in letters]


def test_the_cost_of_a_token_does_not_grow_with_the_reply(tokenizer: Tokenizer) -> None:
    """Counted in ids handed to the tokenizer. B57."""
    ids = tokenizer.encode(" ".join(SAMPLES) * 12, add_special_tokens=False)
    ends = list(tokenizer.end_ids)[:1]
    for reply in (ids, ends * 2000, ids[:50] + ends * 1000 + ids):
        costs = cost_of_each(reply, tokenizer.decode)
        assert len(costs) >= 2000
        assert max(costs) <= 160
        assert max(costs[-500:]) <= max(costs[:500])


def cost_of_each(
    ids: Sequence[int], decode: Callable[[Sequence[int]], str], kind: type = Detokenizer
) -> list[int]:
    spent = 0

    def counted(some: Sequence[int]) -> str:
        nonlocal spent
        spent += len(some)
        return decode(some)

    detokenizer, costs = kind(counted), []
    for token in ids:
        spent = 0
        detokenizer.add(token)
        costs.append(spent)
    return costs


def test_control_a_detokenizer_that_decodes_everything_again_is_noticed() -> None:
    class Naive(Detokenizer):
        def _take(self, text: str) -> str:
            self._shown = len(self._ids)
            self._before = self._decode(self._ids)
            return text

    costs = cost_of_each([0] * 2000, lambda ids: "a" * len(ids), Naive)
    assert max(costs) > 160


# -- stop strings --------------------------------------------------------------------------

pieces = st.lists(st.text("abc", max_size=4), max_size=12)
stop_lists = st.lists(st.text("abc", min_size=1, max_size=4), max_size=3)


def shown_by(matcher: StopMatcher, parts: Sequence[str]) -> tuple[str, bool]:
    shown = ""
    for part in parts:
        new, stopped = matcher.add(part)
        shown += new
        if stopped:
            return shown, True
    return shown + matcher.finish(), False


def cut(whole: str, stops: Sequence[str]) -> tuple[str, bool]:
    places = [whole.find(stop) for stop in stops if stop in whole]
    return (whole[: min(places)], True) if places else (whole, False)


def nested(stops: Sequence[str]) -> bool:
    """Whether one stop string can be complete before one that began earlier is."""
    return any(one in other[1:-1] for one in stops for other in stops)


@settings(derandomize=True, max_examples=some(500))
@given(pieces, stop_lists)
def test_text_ends_where_the_first_stop_begins_however_it_was_cut_up(
    parts: list[str], stops: list[str]
) -> None:
    """How text is divided into pieces does not matter. B22."""
    assume(not nested(stops))
    assert shown_by(StopMatcher(stops), parts) == cut("".join(parts), stops)


def test_one_stop_inside_another_cuts_at_the_same_place_however_the_text_was_cut_up() -> None:
    """Letter by letter or at once, the same is shown. B22."""
    stops = ["bcd", "c"]
    assert shown_by(StopMatcher(stops), list("abcd")) == shown_by(StopMatcher(stops), ["abcd"])


@settings(derandomize=True, max_examples=some(300))
@given(pieces, stop_lists.filter(len))
def test_exactly_what_might_begin_a_stop_is_held_back(parts: list[str], stops: list[str]) -> None:
    """A client sees everything else at once. B22."""
    matcher, so_far, shown = StopMatcher(stops), "", ""
    for part in parts:
        so_far += part
        new, stopped = matcher.add(part)
        shown += new
        if stopped:
            return
        sizes = [
            size for stop in stops for size in range(len(stop)) if so_far.endswith(stop[:size])
        ]
        assert shown == so_far[: len(so_far) - max(sizes)]


def test_control_a_matcher_that_looks_at_single_pieces_misses_stops() -> None:
    class Hasty(StopMatcher):
        def _possible_beginning(self) -> int:
            return 0

    assert shown_by(Hasty(["END"]), ["textE", "ND"]) != cut("textEND", ["END"])
    assert shown_by(StopMatcher(["END"]), ["textE", "ND"]) == cut("textEND", ["END"])


def decoding(tokenizer: Tokenizer, **said: Any) -> Decoding:
    ends = tokenizer.end_ids
    return resolve(SamplingParams(**said), GenerationDefaults(), vocab=VOCAB, end_ids=ends)


@quick
@given(text, st.lists(st.sampled_from(["🇫🇷", "今", " ", "te", "\u200d", "é", "aus"]), max_size=2))
def test_a_reply_stops_across_token_borders(
    tokenizer: Tokenizer, said: str, stops: list[str]
) -> None:
    """With any tokenizer, what is shown is the text before the first stop. B20, B22."""
    ids = tokenizer.encode(said, add_special_tokens=False)
    reply, shown, stopped = (
        OutputProcessor(tokenizer.decode, decoding(tokenizer, stop=stops)),
        "",
        False,
    )
    for token in ids:
        stopped = reply.add(token)
        shown += reply.take()
        if stopped:
            break
    stopped = stopped or reply.finish()
    assert (shown + reply.take(), stopped) == cut(tokenizer.decode(ids), stops)


# -- the end of a reply --------------------------------------------------------------------


class Asked:
    """One request: the engine's sequence, and the caller's handle that makes the text."""

    def __init__(self, tokenizer: Tokenizer, **said: Any):
        it = decoding(tokenizer, **said)
        request = Request("r", Prepared((1, 2, 3)), (it,))
        self.sequence = Row.start(request, 0, tokenizer.decode, None)
        nobody: Any = None
        self.handle = Handle(nobody, "r", Output([Choice()]), [ChoiceText(tokenizer.decode, it)])

    def take(self, event: Event) -> str:
        """What the caller is shown of an event."""
        assert event.text == ""
        self.handle._take(event)
        assert self.handle.done == self.sequence.done == (event.finish_reason is not None)
        [event] = self.handle.take_events()
        return event.text

    def run(self, ids: Sequence[int]) -> tuple[str, str | None, int]:
        """The text shown, why it ended, and after how many tokens."""
        shown = ""
        for at, token in enumerate(ids, 1):
            event = self.sequence.add((token,))
            shown += self.take(event)
            assert self.handle.output.text == shown
            if event.finish_reason:
                return shown, event.finish_reason, at
        return shown, None, len(ids)


def test_stop_strings_count_from_min_tokens_on(bytewise: Tokenizer) -> None:
    """One that ends earlier is text. B22."""
    ids = byte_tokens(bytewise, "xENDyENDz")
    assert Asked(bytewise, stop="END").run(ids) == ("x", "stop", 4)
    assert Asked(bytewise, stop="END", min_tokens=4).run(ids)[0] != "x"
    assert Asked(bytewise, stop="END", min_tokens=5).run(ids) == ("xENDy", "stop", 8)
    # Text shown before min_tokens cannot be taken back.
    assert Asked(bytewise, stop="END", min_tokens=3).run(ids) == ("xENDy", "stop", 8)


def test_text_held_back_is_shown_when_the_reply_ends_otherwise(bytewise: Tokenizer) -> None:
    """By its limit, an end token or an abort. B22."""
    ids = byte_tokens(bytewise, "xEN")
    assert Asked(bytewise, stop="END", max_tokens=3).run(ids) == ("xEN", "length", 3)
    assert Asked(bytewise, stop="END").run([*ids, IM_END]) == ("xEN", "stop", 4)
    asked = Asked(bytewise, stop="END")
    assert asked.run(ids)[0] == "x"
    assert asked.take(asked.sequence.end("abort")) == "EN"


def test_an_end_token_ends_the_reply_and_is_not_shown(bytewise: Tokenizer) -> None:
    """Unless `ignore_eos` is set, and even then it is not shown. B21, B30."""
    ids = byte_tokens(bytewise, "hi")
    for stop in (None, "☂"):  # without and with a reason for the engine to read the text
        assert Asked(bytewise, stop=stop).run([*ids, IM_END, *ids]) == ("hi", "stop", 3)
        heedless = Asked(bytewise, stop=stop, ignore_eos=True)
        assert heedless.run([*ids, IM_END, *ids]) == ("hihi", None, 5)
        assert Asked(bytewise, stop=stop, stop_token_ids=[ids[1]]).run(ids) == ("h", "stop", 2)


def test_a_character_cut_off_by_the_token_limit_is_not_hidden(bytewise: Tokenizer) -> None:
    """The streamed text still equals the text at once. B20."""
    ids = byte_tokens(bytewise, "a€")[:3]
    assert Asked(bytewise, max_tokens=3).run(ids) == (bytewise.decode(ids), "length", 3)


def test_a_stop_string_completed_by_a_character_cut_off_ends_the_reply(bytewise: Tokenizer) -> None:
    """What the limit cuts off is shown as a broken character, which may be asked for. B22."""
    ids = byte_tokens(bytewise, "a€")[:3]
    assert Asked(bytewise, max_tokens=3, stop=BROKEN).run(ids) == ("a", "stop", 3)
    early = Asked(bytewise, max_tokens=3, min_tokens=3, stop=BROKEN)
    assert early.run(ids) == ("a", "stop", 3)
    assert Asked(bytewise, stop=BROKEN).run([*ids, IM_END]) == ("a", "stop", 4)


@quick
@given(
    said=st.text("abc☂", max_size=8),
    more=st.lists(st.integers(0, VOCAB - 1) | st.just(IM_END), max_size=4),
    stops=st.lists(st.text("abc☂", min_size=1, max_size=2), max_size=2),
    min_tokens=st.sampled_from([0, 0, 3, 5]),
    max_tokens=st.sampled_from([5, 10, 100]),
)
def test_text_and_end_do_not_depend_on_when_the_caller_looks(
    bytewise: Tokenizer,
    said: str,
    more: list[int],
    stops: list[str],
    min_tokens: int,
    max_tokens: int,
) -> None:
    """The engine, which shows no text, finds the end that the text has. B20, B22."""
    ids = [*(byte_tokens(bytewise, said) if said else ()), *more]
    limits = {"stop": stops, "min_tokens": min_tokens, "max_tokens": max_tokens}
    shown, reason, count = Asked(bytewise, **limits).run(ids)
    late = Asked(bytewise, **limits)
    for token in ids[:count]:
        late.handle._take(late.sequence.add((token,)))
    output = late.handle.output
    assert (output.text, output.finish_reason) == (shown, reason)
    assert output.token_ids == ids[:count]
    if not min_tokens and reason:
        body = list(takewhile(lambda it: it not in bytewise.end_ids, ids[:max_tokens]))
        ended = len(body) < len(ids[:max_tokens])
        text, stopped = cut(bytewise.decode(body), stops)
        assert (shown, reason) == (text, "stop" if stopped or ended else "length")


@pytest.mark.parametrize("size", [2, 3, 9])
def test_tokens_that_come_several_at_a_time_end_the_reply_where_one_by_one_does(
    bytewise: Tokenizer, size: int
) -> None:
    ids = [*byte_tokens(bytewise, "xxENDyy"), IM_END, *byte_tokens(bytewise, "zz")]
    for asked in ({}, {"stop": "END"}, {"max_tokens": 4}, {"ignore_eos": True}):
        _, reason, count = Asked(bytewise, **asked).run(ids)
        sequence, got = Asked(bytewise, **asked).sequence, list[int]()
        for at in range(0, len(ids), size):
            event = sequence.add(tuple(ids[at : at + size]))
            got += event.token_ids
            if event.finish_reason is not None:
                break
        assert (got, event.finish_reason) == (ids[:count], reason)


def test_control_an_engine_that_reads_no_text_misses_stop_strings(bytewise: Tokenizer) -> None:
    asked = Asked(bytewise, stop="END")
    asked.sequence.reply = None
    for token in byte_tokens(bytewise, "xEND"):
        assert asked.sequence.add((token,)).finish_reason is None
    assert Asked(bytewise, stop="END").sequence.reply is not None
    assert Asked(bytewise).sequence.reply is None
