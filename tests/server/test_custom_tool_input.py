"""The text inside a custom tool's arguments, however they are cut."""

from __future__ import annotations

import json

import hypothesis.strategies as st
from hypothesis import given

from bushel.server.api.custom_tool_input import InputText

# Text that a client can be sent: half of a pair is none.
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


@given(TEXTS, st.booleans(), st.data())
def test_the_text_comes_whole_whatever_the_cuts(text: str, ascii_only: bool, data: st.DataObject):
    raw = json.dumps({"input": text}, ensure_ascii=ascii_only)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)))))
    pieces = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    reader = InputText()
    told = [*map(reader.feed, pieces), reader.finish()]
    assert "".join(told) == reader.text == text


@given(TEXTS, st.data())
def test_what_was_cut_off_is_the_beginning_of_the_text(text: str, data: st.DataObject):
    """Nothing is added that was not said. B24."""
    raw = json.dumps({"input": text})
    end = data.draw(st.integers(len('{"input": "'), len(raw)))
    reader = InputText()
    told = reader.feed(raw[:end]) + reader.finish()
    assert text.startswith(told)


def test_other_arguments_are_taken_for_what_they_say() -> None:
    def read(raw: str) -> str:
        reader = InputText()
        assert reader.feed(raw) == ""
        return reader.finish()

    assert read('{"patch": "a\\nb"}') == "a\nb"
    assert read('{"b": 1, "input": "a"}') == "a"
    assert read('{"a": 1, "b": 2}') == '{"a": 1, "b": 2}'
    assert read("*** Begin") == "*** Begin"
