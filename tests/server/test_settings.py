"""Flags in the environment and in a file mean what they mean on the command line."""

import argparse
import types
from pathlib import Path
from typing import Any

import pytest

from bushel.cli import main
from bushel.core import BushelError
from bushel.server.command import flags
from bushel.server.command.options_of_flags import options_of_flags
from bushel.server.command.settings import own_flags, variable, with_settings
from bushel.server.options import ServerOptions


def parser() -> argparse.ArgumentParser:
    return flags.add(argparse.ArgumentParser().add_subparsers())


def made(*words: str, file: Path | None = None, **environment: str) -> ServerOptions:
    serving = parser()
    environment.setdefault("XDG_CONFIG_HOME", "/nowhere")
    config = () if file is None else ("--config", str(file))
    arguments = serving.parse_args([*words, *config])
    return options_of_flags(with_settings(arguments, serving, environment), environment)[0]


def written(folder: Path, text: str) -> Path:
    file = folder / "bushel.toml"
    file.write_text(text)
    return file


def test_a_variable_is_the_flag_of_its_name() -> None:
    options = made(BUSHEL_MAX_NUM_SEQS="8", BUSHEL_LOG_JSON="true", BUSHEL_MODELS="a, b=c")
    assert options.engine.max_batch == 8
    assert options.log_json
    assert [spec.model for spec in options.models] == ["a", "c"]


def test_a_file_has_the_same_names(tmp_path: Path) -> None:
    text = """
    models = ["some/model"]
    max-num-seqs = 3
    token_gap = 0.25
    log-json = true
    no-prefix-cache = true
    cors-origin = ["http://a.example", "http://b.example"]
    served-model-name = ["one", "two"]
    cache-memory = "512MB"
    """
    with pytest.raises(BushelError, match="--no-prefix-cache leaves --cache-memory"):
        made(file=written(tmp_path, text))
    options = made(file=written(tmp_path, text.replace("no-prefix-cache = true", "")))
    assert options.engine.model == "some/model"
    assert (options.engine.max_batch, options.engine.token_gap) == (3, 0.25)
    assert options.engine.cache_memory == 512 * 10**6
    assert options.cors_origins == ("http://a.example", "http://b.example")
    assert options.served_names == ("one", "two")


def test_flags_win_over_variables_and_those_over_the_file(tmp_path: Path) -> None:
    file = written(
        tmp_path, 'port = 1\nmax-num-seqs = 1\ntoken-gap = 1\ncors-origin = "http://a"\n'
    )
    options = made(
        "--port", "3", "--cors-origin", "http://c",
        file=file, BUSHEL_PORT="2", BUSHEL_MAX_NUM_SEQS="2", BUSHEL_CORS_ORIGIN="http://b",
    )  # fmt: skip
    assert (options.port, options.engine.max_batch, options.engine.token_gap) == (3, 2, 1.0)
    assert options.cors_origins == ("http://c",)


def test_a_switch_can_be_turned_off_again(tmp_path: Path) -> None:
    file = written(tmp_path, "log-json = true\nno-prefix-cache = true\n")
    options = made(file=file, BUSHEL_LOG_JSON="0", BUSHEL_NO_PREFIX_CACHE="no")
    assert not options.log_json
    assert options.engine.prefix_cache


def test_the_file_is_found_where_it_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / "bushel"
    folder.mkdir()
    file = written(folder, "port = 4711")
    assert made(XDG_CONFIG_HOME=str(tmp_path)).port == 4711
    assert made(BUSHEL_CONFIG=str(file)).port == 4711


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({"BUSHEL_MAX_NUM_SEQ": "8"}, "did you mean BUSHEL_MAX_NUM_SEQS"),
        ({"BUSHEL_NONSENSE_OF_MINE": "8"}, "BUSHEL_NONSENSE_OF_MINE in the environment is no"),
        ({"BUSHEL_PORT": "many"}, "BUSHEL_PORT must be a whole number"),
        ({"BUSHEL_LOG_JSON": "perhaps"}, "BUSHEL_LOG_JSON must be true or false"),
        ({"BUSHEL_CONFIG": "/no/such/file"}, "/no/such/file cannot be read"),
    ],
)
def test_what_is_wrong_is_named(environment: dict[str, str], told: str) -> None:
    with pytest.raises(BushelError) as caught:
        made(**environment)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("max-num-sequs = 8", "did you mean max-num-seqs"),
        ("port = 'many'", "must be a whole number"),
        ("port = [1, 2]", "must be one value"),
        ("port = true", "must be one value"),
        ("[engine]\nport = 1", "is no setting"),
        ("port =", "cannot be read"),
        ("api-key = [1.5, {}]", "must be one value"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(tmp_path: Path, text: str, told: str) -> None:
    file = written(tmp_path, text)
    with pytest.raises(BushelError) as caught:
        made(file=file)
    assert told in str(caught.value)
    assert str(file) in str(caught.value)


def test_every_flag_is_a_variable_of_its_own() -> None:
    names = [variable(flag) for flag in own_flags(parser())]
    assert len(set(names)) == len(names) > 50


def test_variables_that_are_no_flags_are_left_alone() -> None:
    kept = {"BUSHEL_DEVICE": "cpu", "BUSHEL_TEST_CORPUS": "x", "BUSHEL_RUNTIME_DIR": "/x"}
    assert made(**kept).port == ServerOptions.port


def test_serve_reads_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    found: list[Any] = []
    run = types.ModuleType("bushel.server.run")
    run.serve = lambda options: found.append(options) or 0  # type: ignore[attr-defined, func-returns-value]
    monkeypatch.setitem(__import__("sys").modules, "bushel.server.run", run)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("BUSHEL_PORT", "4712")
    assert main(["serve"]) == 0
    assert found[0].port == 4712
    monkeypatch.setenv("BUSHEL_PORTS", "1")
    assert main(["serve"]) == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith("did you mean BUSHEL_PORT.")
