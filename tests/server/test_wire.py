"""What processes say to each other arrives as it was said, in whatever pieces."""

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from bushel.core import BushelError, Event, GenerationDefaults, RequestError, SamplingParams
from bushel.core.params import resolve
from bushel.core.wire import (
    Accepted,
    Assembler,
    FromEngine,
    Refused,
    Stepped,
    Submit,
    ToEngine,
    encode,
    pack,
    unpack,
)

DECODING = resolve(
    SamplingParams(seed=7, stop=["x", "é"], logit_bias={3: -1.5}, temperature=0.3),
    GenerationDefaults(),
    vocab=10,
    end_ids=frozenset([1, 2]),
)

tensors = st.dictionaries(
    st.text(max_size=8),
    st.recursive(
        arrays.arrays(
            st.sampled_from([np.float32, np.uint8, np.int64, np.bool_, np.float16]),
            arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4),
        )
        | st.integers(-(2**40), 2**40)
        | st.floats(allow_nan=False)
        | st.text(max_size=5)
        | st.none(),
        lambda inner: st.lists(inner, max_size=3),
        max_leaves=4,
    ),
    max_size=4,
)


def same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        kinds = isinstance(other, np.ndarray) and one.dtype == other.dtype
        return kinds and one.shape == other.shape and one.tobytes() == other.tobytes()
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


@given(tensors, st.lists(st.integers(1, 50), max_size=30))
def test_requests_arrive_whole_in_any_pieces(found: dict[str, Any], cuts: list[int]) -> None:
    plain, tail = pack(found)
    submit = Submit("r1", (1, 2, 3), plain, DECODING, 2)
    sent = b"".join(bytes(it) for it in (*encode(submit, tail), *encode(submit, tail)))
    assembler: Assembler[ToEngine] = Assembler(ToEngine)
    arrived, at = [], 0
    for cut in (*cuts, len(sent)):
        arrived += list(assembler.feed(sent[at : at + cut]))
        at += cut
    assert len(arrived) == 2
    for message, behind in arrived:
        assert isinstance(message, Submit)
        assert (message.id, message.ids, message.decoding) == ("r1", (1, 2, 3), DECODING)
        whole = unpack(message.tensors, behind)
        assert list(found) == list(whole)
        assert same(list(found.values()), list(whole.values()))


def test_events_of_a_step_arrive_as_they_were() -> None:
    step = Stepped([Event("a", 0, (5,)), Event("b", 1, (), "", (), (), "error", "why", "code")])
    [(message, _)] = Assembler(FromEngine).feed(b"".join(encode(step)))  # type: ignore[var-annotated]
    assert message == step


@pytest.mark.parametrize("sent", [Accepted("x"), Stepped([])])
def test_a_message_for_someone_else_is_not_taken(sent: Any) -> None:
    with pytest.raises(msgspec.ValidationError):
        list(Assembler(ToEngine).feed(b"".join(encode(sent))))


def test_garbage_is_not_waited_for() -> None:
    with pytest.raises(BushelError):
        list(Assembler(ToEngine).feed(b"\xff" * 64))


def test_a_fault_of_ours_tells_the_client_no_more_than_its_kind() -> None:
    ours = Refused.because("r", ValueError("/secret/path at 0x7f00"))
    assert ours.internal
    assert ours.message == "ValueError"
    theirs = Refused.because("r", RequestError("too long", code="c", param="p"))
    assert (theirs.internal, theirs.message, theirs.code, theirs.param) == (
        False,
        "too long",
        "c",
        "p",
    )
