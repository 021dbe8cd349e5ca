"""What is left of a batch whose server died while it wrote: all lines but the torn one (B83)."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bushel.server.batches.folder import BatchFolder, FolderInUse
from bushel.server.batches.records import BatchRecord
from bushel.server.batches.results import BatchResults
from bushel.server.errors import ApiError
from bushel.server.http.multipart import form_parts
from tests.depth import some


def opened(folder: Path) -> BatchResults:
    return BatchResults(folder / "output", folder / "errors")


def ids_in(path: Path) -> list[str]:
    return [json.loads(line)["custom_id"] for line in path.read_bytes().splitlines()]


@pytest.mark.long
def test_a_file_cut_at_any_byte_is_gone_on_with(tmp_path: Path) -> None:
    """Every line that was written is kept, and the one that was not is done again. B83."""
    results = opened(tmp_path)
    names = ["one", "tw\no", "dreißig", "four"]
    for name in names:
        results.answer(name, 200, "id", b'{"text": "a\\nb"}')
    results.give_up("five", "batch_expired", "late")
    results.close()
    whole = (tmp_path / "output").read_bytes()
    lines = whole.splitlines(keepends=True)
    for cut in range(len(whole) + 1):
        (tmp_path / "output").write_bytes(whole[:cut])
        again = opened(tmp_path)
        kept = sum(sum(map(len, lines[: at + 1])) <= cut for at in range(len(lines)))
        assert [name for name in names if name in again] == names[:kept]
        assert "five" in again
        for name in names[kept:]:
            again.answer(name, 200, "id", b'{"text": "again"}')
        again.close()
        assert ids_in(tmp_path / "output") == names


def test_bad_answers_are_in_a_file_of_their_own(tmp_path: Path) -> None:
    results = opened(tmp_path)
    results.answer("good", 200, "1", b"{}")
    results.answer("bad", 400, "2", b'{"error": {}}')
    results.close()
    assert (ids_in(tmp_path / "output"), ids_in(tmp_path / "errors")) == (["good"], ["bad"])


def test_a_folder_is_of_one_server_at_a_time(tmp_path: Path) -> None:
    """Two servers do not run the same batch. B83."""
    first = BatchFolder(tmp_path)
    with pytest.raises(FolderInUse):
        BatchFolder(tmp_path)
    first.close()
    BatchFolder(tmp_path).close()


def test_a_record_is_whole_or_not_there(tmp_path: Path) -> None:
    folder = BatchFolder(tmp_path)
    name, hexes = "batch_" + "0" * 32, "file-" + "1" * 32
    record = BatchRecord(
        id=name, owner="", endpoint="/v1/completions", input_file_id=hexes,
        completion_window="24h", created_at=1, expires_at=2,
        output_file_id=hexes, error_file_id=hexes,
    )  # fmt: skip
    folder.write("batches", name, record)
    (tmp_path / "batches" / f"batch_{'2' * 32}.json").write_bytes(b'{"id": ')
    (tmp_path / "results" / hexes).write_bytes(b"x")
    assert [*folder.records("batches", BatchRecord)] == [record]
    folder.discard_strangers(set())
    assert not (tmp_path / "results" / hexes).exists()
    with pytest.raises(ValueError, match="not an id"):
        folder.content("../../etc/passwd")
    folder.close()


@settings(derandomize=True, max_examples=some(200))
@given(
    st.lists(st.binary(max_size=40), min_size=1, max_size=4), st.sampled_from(["x", "--", "a-b"])
)
def test_parts_of_a_form_come_out_as_they_went_in(contents: list[bytes], border: str) -> None:
    line = b"--" + border.encode()
    parts = b"".join(
        line + f'\r\nContent-Disposition: form-data; name="{at}"\r\n\r\n'.encode() + data + b"\r\n"
        for at, data in enumerate(contents)
    )
    if any(b"\r\n" + line in b"\r\n" + data for data in contents):
        return  # which a client's random boundary rules out
    read = form_parts(f'multipart/form-data; boundary="{border}"', parts + line + b"--\r\n")
    assert [bytes(read[str(at)].content) for at in range(len(contents))] == contents


@settings(derandomize=True, max_examples=some(300))
@given(st.lists(st.sampled_from([b"--x", b"--", b"\r\n", b"\r\n\r\n", b"name=", b"a", b'"'])))
def test_any_bytes_are_a_form_or_are_refused(pieces: list[bytes]) -> None:
    with contextlib.suppress(ApiError):  # and by nothing else
        form_parts("multipart/form-data; boundary=x", b"".join(pieces))
