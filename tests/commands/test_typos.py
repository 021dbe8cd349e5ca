"""A command, a flag or a choice that is misspelt is answered with the right one."""

from __future__ import annotations

import pytest

from bushel import cli


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("sevre", "bushel: 'sevre' is not known; did you mean 'serve'? (see bushel --help)"),
        ("launch cluade", "'cluade' is not known; did you mean 'claude'?"),
        ("completion tcsh", "'tcsh' is not known: one of bash, zsh, fish"),
        ("check x --dtype float23", "argument --dtype: 'float23' is not known; did you mean"),
        ("serve --max-num-seq 3", "--max-num-seq; did you mean '--max-num-seqs'? (see bushel"),
        ("serve --continous-batching", "did you mean '--continuous-batching'?"),
        ("serve --max-model-length=3", "did you mean '--max-model-len'? (see bushel serve --help)"),
        ("run --max-tokns=3 hi", "did you mean '--max-tokens'? (see bushel run --help)"),
        ("--jsn", "--jsn; did you mean '--json'? (see bushel --help)"),
    ],
)
def test_a_typo_is_answered_with_what_was_meant(
    words: str, told: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(words.split())
    assert ended.value.code == 2
    said = capfd.readouterr().err
    assert told in said
    assert said.count("\n") == 1
