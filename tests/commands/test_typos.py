"""A command or a choice that is misspelt is answered with the right one."""

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
