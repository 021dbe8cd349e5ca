"""`bushel serve`'s arguments: what they mean, and what is said about those that mean nothing."""

import argparse
import logging
import math
import os
import re
import subprocess
import sys
import types
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import pytest

from bushel.cli import main
from bushel.core import GenerationDefaults
from bushel.core.checkpoint import TINY
from bushel.core.options import EngineOptions, Order
from bushel.server.command import flags
from bushel.server.command.other_servers_flags import (
    NOTED,
    NOTED_PERHAPS,
    NOTED_VALUES,
    REFUSED,
)
from bushel.server.options import ServerOptions

Capture = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch


@pytest.fixture(autouse=True)
def served(monkeypatch: Patch) -> list[ServerOptions]:
    """What `serve` would have been started with, instead of starting it."""
    found: list[ServerOptions] = []
    run = types.ModuleType("bushel.server.run")

    def serve(options: ServerOptions) -> int:
        found.append(options)
        return 0

    run.serve = serve  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "bushel.server.run", run)
    monkeypatch.delenv("BUSHEL_API_KEY", raising=False)
    monkeypatch.setattr(logging.root, "handlers", [])
    return found


def made(served: list[ServerOptions], *arguments: str) -> ServerOptions:
    assert main(["serve", *arguments]) == 0
    return served[-1]


def refused(capsys: Capture, *arguments: str) -> str:
    """The one line that is told, with exit code 2."""
    try:
        code: Any = main(["serve", *arguments])
    except SystemExit as leaving:
        code = leaving.code
    told = capsys.readouterr()
    assert code == 2
    assert not told.out
    assert told.err.count("\n") == 1
    assert told.err.startswith("bushel: ")
    return told.err


def command(*arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = {key: it for key, it in os.environ.items() if key != "BUSHEL_API_KEY"}
    line = [sys.executable, "-m", "bushel", *arguments]
    return subprocess.run(line, capture_output=True, text=True, env=environment)


# -- what flags mean -------------------------------------------------------------------------


def test_nothing_said_is_the_small_model_on_loopback(served: list[ServerOptions]) -> None:
    options = made(served)
    assert options == ServerOptions(EngineOptions("bushel:tiny"))
    assert (options.host, options.port) == ("127.0.0.1", 8000)


def test_everything_said_arrives(served: list[ServerOptions], tmp_path: Path) -> None:
    said = """--host ::1 --port 0 --max-num-seqs 7 --prefill-chunk 64 --scheduler-policy shortest
        --scheduler-headroom-gb 1.5 --memory-limit-gb 20 --kv-bits 8 --dtype float32
        --trust-remote-code --token-gap 0.1 --start-wait 3 --no-self-check --queue-limit 9
        --timeout 60 --drain-seconds 1 --hang-seconds 45 --workers 3 --max-body-mb 2
        --max-request-tokens 100 --log-json --log-prompts --log-level debug --allow-remote-media
        --allowed-media-domains a.org *.b.org --allowed-host box --allowed-host *.local
        --cors-origin http://localhost:3000 --api-key one --api-key two
        --served-model-name a b --model-alias gpt-*=a --model-alias *=b --cache-memory 3
        --snapshot-every 512 --cache-kv-bits 8 --cache-disk 500MB --speculate lookup"""
    places = ("--media-path", str(tmp_path), "--cache-dir", str(tmp_path / "new" / "cache"))
    options = made(served, "org/model", *said.split(), *places)
    engine = options.engine
    assert engine == EngineOptions(
        "org/model",
        dtype="float32",
        max_batch=7,
        prefill_chunk=64,
        trust_remote_code=True,
        kv_bits=8,
        token_gap=0.1,
        start_wait=3.0,
        order="shortest",
        speculate="lookup",
        memory_limit=20_000_000_000,
        headroom=1_500_000_000,
        self_check=False,
        cache_memory=3_000_000_000,
        snapshot_every=512,
        cache_kv_bits=8,
        cache_dir=str(tmp_path / "new" / "cache"),
        cache_disk=500_000_000,
    )
    assert not (tmp_path / "new").exists()  # the engine makes it, when it is needed
    assert (options.host, options.port, options.workers) == ("::1", 0, 3)
    assert (options.timeout, options.drain_seconds, options.hang_seconds) == (60.0, 1.0, 45.0)
    assert (options.limits.queue, options.limits.tokens) == (9, 100)
    assert options.limits.body_bytes == 2 << 20
    assert (options.log_json, options.log_prompts, options.log_level) == (True, True, "debug")
    assert (options.media.remote, options.media.domains) == (True, ("a.org", "*.b.org"))
    assert options.media.folder == str(tmp_path.resolve())
    assert options.allowed_hosts == ("box", "*.local")
    assert options.cors_origins == ("http://localhost:3000",)
    assert options.api_keys == ("one", "two")
    assert options.served_names == ("a", "b")
    assert options.aliases == (("gpt-*", "a"), ("*", "b"))


def test_sampling_defaults_stand_before_the_models_own(served: list[ServerOptions]) -> None:
    """What the command line sets is used where a request says nothing. B31."""
    said = "--default-temperature 0.7 --default-top-p 0.9 --default-top-k 40 --default-min-p 0.05"
    more = "--default-repetition-penalty 1.1 --default-max-tokens 99"
    found = made(served, *said.split(), *more.split()).defaults
    assert found == GenerationDefaults(0.7, 0.9, 40, 0.05, 1.1, 99)
    assert made(served).defaults == GenerationDefaults()


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("--chunked-prefill-tokens 64", "--prefill-chunk 64"),
        ("--prefill-step-size 64", "--prefill-chunk 64"),
        ("--max-num-batched-tokens 64", "--prefill-chunk 64"),
        ("--scheduler-policy fcfs", "--scheduler-policy arrival"),
        ("--scheduling-policy sjf", "--scheduler-policy shortest"),
        ("--max-tokens 5", "--default-max-tokens 5"),
        ("--kv-cache-quantization", "--cache-kv-bits 8"),
        ("--kv-cache-quantization-bits 4 --kv-cache-quantization", "--cache-kv-bits 4"),
        ("--disable-prefix-cache", "--no-prefix-cache"),
        ("--no-enable-prefix-caching", "--no-prefix-cache"),
        ("--enable-prefix-caching", ""),
        ("--cache-memory-mb 512", "--cache-memory 512MiB"),
        ("--cache-memory 0.5", "--cache-memory 500MB"),
        ("--cache-memory 2gib", "--cache-memory 2048MiB"),
        ("--ssd-cache-dir /tmp --ssd-cache-max-gb 2", "--cache-dir /tmp --cache-disk 2GB"),
        ("--mid-prefill-save-interval 512", "--snapshot-every 512"),
        ("--dtype half", "--dtype float16"),
        ("--dtype auto", ""),
        ("--allowed-local-media-path /", "--media-path /"),
        ("--uvicorn-log-level error", "--log-level error"),
        ("--port 81 org/model", "org/model --port 81"),
        ("--trust-remote-code org/model --port 81", "org/model --port 81 --trust-remote-code"),
        ("--model org/model", "org/model"),
        ("-m org/model --port 81", "org/model --port 81"),
        ("--model a/one two=b/two --model c/three", "a/one two=b/two c/three"),
        ("-c 4096", "--max-model-len 4096"),
        ("--ctx-size 0", ""),
        ("--max-model-len auto", ""),
        ("--max-model-len 32k", "--max-model-len 32000"),
        ("--max-model-len 32K", "--max-model-len 32768"),
        ("--max-model-len 1.5K", "--context-length 1536"),
        ("--seed -1", ""),
        ("-s 5", "--seed 5"),
        ("--temp 0.7", "--default-temperature 0.7"),
        (
            "--top-p 0.9 --top-k 5 --min-p 0.1",
            "--default-top-p 0.9 --default-top-k 5 --default-min-p 0.1",
        ),
        ("--repeat-penalty 1.1", "--default-repetition-penalty 1.1"),
        ("-n 9", "--default-max-tokens 9"),
        ("--n-predict -1", ""),
        ("-np 4", "--max-num-seqs 4"),
        ("--decode-concurrency 4", "--max-num-seqs 4"),
        ("org/model -a local", "org/model --served-model-name local"),
        ("--api-prefix /v", "--root-path /v"),
        ("--root-path /v/", "--root-path /v"),
        ("--root-path /", ""),
        ("--generation-config auto", ""),
        ('--limit-mm-per-prompt {"image":4,"video":1}', "--limit-mm-per-prompt image=4,video=1"),
        ('--limit-mm-per-prompt {"image":{"count":4}}', "--limit-mm-per-prompt image=4"),
        ("--limit-mm-per-prompt audio=1", ""),
        ('--chat-template-args {"a":1}', '--default-chat-template-kwargs {"a":1}'),
        ('--allowed-origins ["http://a","*"]', "--cors-origin http://a --cors-origin *"),
        ("--allowed-origins http://a,http://b", "--cors-origin http://a --cors-origin http://b"),
        ("--log-level INFO", "--log-level info"),
    ],
)
def test_other_spellings_mean_the_same(said: str, meant: str, served: list[ServerOptions]) -> None:
    assert made(served, *said.split()) == made(served, *meant.split())


def test_a_command_line_of_vllm_mlx_works(served: list[ServerOptions], capsys: Capture) -> None:
    line = (
        "org/model --host 127.0.0.1 --port 8001 --continuous-batching --mllm --use-paged-cache "
        "--enable-prefix-cache --chunked-prefill-tokens 1024 --max-num-seqs 16 --stream-interval 2 "
        "--scheduler-policy fcfs --scheduler-headroom-gb 4 --default-temperature 0.2 "
        "--default-top-p 0.95 --served-model-name local"
    )
    options = made(served, *line.split())
    assert (options.engine.max_batch, options.engine.prefill_chunk) == (16, 1024)
    assert options.served_names == ("local",)
    assert len(capsys.readouterr().err.splitlines()) == 5


def test_files_get_a_tenth_of_what_is_free_and_no_more_than_20_gb(
    served: list[ServerOptions], tmp_path: Path, monkeypatch: Patch
) -> None:
    for free, room in ((10**12, 20 * 10**9), (50 * 10**9, 5 * 10**9)):
        monkeypatch.setattr("shutil.disk_usage", lambda _, it=free: types.SimpleNamespace(free=it))
        found = made(served, "--cache-dir", str(tmp_path / "not" / "there")).engine
        assert found.cache_disk == room
    assert made(served).engine.cache_disk is None


# -- notes -----------------------------------------------------------------------------------


def test_numbers_that_other_servers_set_arrive(served: list[ServerOptions], tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_text('{"temperature": 0.4, "top_k": 9}')
    template = "{{ messages }}"
    options = made(
        served,
        *("--max-model-len", "4k", "--seed", "3", "--generation-config", str(tmp_path)),
        *("--limit-mm-per-prompt", '{"image": 80, "video": 0}', "--chat-template", template),
        *("--default-chat-template-kwargs", '{"enable_thinking": false}'),
    )
    assert (options.engine.max_model_len, options.defaults.seed) == (4000, 3)
    assert options.generation_config == GenerationDefaults(temperature=0.4, top_k=9)
    media = options.media
    assert (media.most_images, media.most_videos, media.most_items) == (80, 0, 80)
    assert options.chat_options.template == template
    assert options.chat_options.template_kwargs == {"enable_thinking": False}
    assert made(served, "--generation-config", "vllm").generation_config == GenerationDefaults(1.0)


def test_caps_of_videos_arrive(served: list[ServerOptions]) -> None:
    """How many frames, seconds and bytes a video may have is the operator's to say. B7a."""
    line = "--video-max-frames 16 --video-max-seconds 90 --max-media-size 8MB"
    media = made(served, *line.split()).media
    assert (media.most_frames, media.most_seconds, media.most_bytes) == (16, 90.0, 8 * 10**6)
    for flag in ("--video-max-frames 0", "--video-max-seconds 0", "--max-media-size 10kB"):
        with pytest.raises(SystemExit):
            made(served, *flag.split())


@pytest.mark.parametrize(
    ("line", "who"),
    [
        (["--speculate", "off"], "off"),
        (["--speculate", "mtp"], "mtp"),
        (["--speculate", "org/small"], "org/small"),
        (["--speculate", "bushel:tiny"], "bushel:tiny"),
        (["--draft-model", "org/small"], "org/small"),
        (["--enable-mtp"], "mtp"),
        (["--speculative-method", "ngram"], "lookup"),
        (["--speculative-config", '{"method": "ngram", "num_speculative_tokens": 5}'], "lookup"),
        (["--speculative-config", '{"method": "qwen3_next_mtp"}'], "mtp"),
        (["--speculative-config", '{"model": "org/small"}'], "org/small"),
    ],
    ids=" ".join,
)
def test_who_guesses_tokens_is_said_as_other_servers_say_it(
    line: list[str], who: str, served: list[ServerOptions], tmp_path: Path
) -> None:
    assert made(served, "org/model", *line).engine.speculate == who
    assert made(served, "--speculate", str(tmp_path)).engine.speculate == str(tmp_path)


@pytest.mark.parametrize(
    "line",
    [
        ["--speculate", "ngram"],
        ["--speculate", ""],
        ["--speculative-method", "eagle"],
        ["--speculative-config", '{"method": "eagle3", "model": "org/head"}'],
        ["--speculative-config", "5"],
    ],
    ids=" ".join,
)
def test_nobody_that_can_guess_is_refused(line: list[str], capsys: Capture) -> None:
    assert line[0] in refused(capsys, "org/model", *line)


@pytest.mark.parametrize("flag", [*NOTED, *NOTED_VALUES, *NOTED_PERHAPS])
def test_a_flag_for_what_bushel_does_anyway_is_noted_once(
    flag: str, served: list[ServerOptions], capsys: Capture
) -> None:
    value = ["4"] if flag in NOTED_VALUES else []
    assert made(served, "org/model", flag, *value, flag, *value) == made(served, "org/model")
    told = capsys.readouterr()
    assert not told.out
    assert told.err.count("\n") == 1
    assert f"{flag}: " in told.err


def test_the_note_is_worded_for_people(served: list[ServerOptions], capsys: Capture) -> None:
    made(served, "--continuous-batching")
    assert "--continuous-batching: Bushel always works this way." in capsys.readouterr().err


@pytest.mark.parametrize("flag", REFUSED)
@pytest.mark.parametrize("value", [[], ["4"]])
def test_a_flag_for_what_is_not_there_is_refused_by_name(
    flag: str, value: list[str], capsys: Capture
) -> None:
    assert f"{flag}: " in refused(capsys, "org/model", flag, *value)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost", "a.localhost"])
def test_loopback_needs_no_warning(host: str, served: list[ServerOptions], capsys: Capture) -> None:
    made(served, "--host", host)
    assert not capsys.readouterr().err


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.7", "box.example"])
def test_a_host_that_others_reach_is_warned_of(
    host: str, served: list[ServerOptions], capsys: Capture
) -> None:
    made(served, "--host", host)
    open_to_all = capsys.readouterr().err
    assert "WITHOUT AN API KEY" in open_to_all
    made(served, "--host", host, "--api-key", "sesame")
    guarded = capsys.readouterr().err
    assert host in guarded
    assert "WITHOUT" not in guarded
    assert "sesame" not in guarded


# -- keys ------------------------------------------------------------------------------------


def test_keys_come_from_three_places(
    served: list[ServerOptions], tmp_path: Path, monkeypatch: Patch
) -> None:
    file = tmp_path / "keys"
    file.write_text("\nthree\n  four \n\n")
    monkeypatch.setenv("BUSHEL_API_KEY", "two")
    options = made(served, "--api-key", "one", "--api-key-file", str(file))
    assert options.api_keys == ("one", "two", "three", "four")


def test_operators_keys_come_from_two_places(
    served: list[ServerOptions], capsys: Capture, monkeypatch: Patch
) -> None:
    monkeypatch.setenv("BUSHEL_OPERATOR_KEY", "two")
    options = made(served, "--api-key", "a", "--api-key", "b", "--operator-key", "one")
    assert (options.api_keys, options.operator_keys) == (("a", "b"), ("one", "two"))
    assert "--operator-key" not in capsys.readouterr().err
    monkeypatch.setenv("BUSHEL_OPERATOR_KEY", "")
    assert "BUSHEL_OPERATOR_KEY" in refused(capsys)
    monkeypatch.delenv("BUSHEL_OPERATOR_KEY")
    made(served, "--api-key", "a", "--api-key", "b")
    assert "no --operator-key" in capsys.readouterr().err  # what nobody can do then


@pytest.mark.parametrize("key", ["", "two words", "schlüssel", "new\nline"])
def test_a_key_that_no_header_can_carry_is_refused_and_not_shown(
    key: str, capsys: Capture, monkeypatch: Patch
) -> None:
    """An empty one is an unset variable: it must not leave the server open."""
    told = refused(capsys, "--api-key", key)
    assert "--api-key" in told
    assert not key or key not in told
    monkeypatch.setenv("BUSHEL_API_KEY", key)
    assert "BUSHEL_API_KEY" in refused(capsys)


def test_a_file_without_keys_is_refused(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "keys"
    assert "--api-key-file" in refused(capsys, "--api-key-file", str(file))
    file.write_text("\n\n")
    assert "--api-key-file" in refused(capsys, "--api-key-file", str(file))


# -- what cannot be meant --------------------------------------------------------------------


@pytest.mark.parametrize(
    "said",
    [
        "--port 65536",
        "--port -1",
        "--port http",
        "--host http://here",
        "--max-num-seqs 0",
        "--max-num-seqs 1.5",
        "--prefill-chunk 0",
        "--chunked-prefill-tokens 0",
        "--scheduler-policy priority",
        "--scheduler-headroom-gb -1",
        "--memory-limit-gb 0",
        "--memory-limit-gb nan",
        "--default-temperature inf",
        "--default-top-p 1.1",
        "--default-max-tokens 0",
        "--kv-bits 3",
        "--cache-kv-bits 3",
        "--cache-memory 0",
        "--cache-memory 1kb",
        "--cache-memory -1",
        "--cache-memory 4XB",
        "--cache-memory nan",
        "--cache-memory half",
        "--snapshot-every -1",
        "--snapshot-every 1.5",
        "--cache-disk 0 --cache-dir /tmp",
        "--cache-disk 4",
        "--cache-dir /dev/null",
        "--cache-dir /dev/null/below",
        "--no-prefix-cache --cache-memory 4",
        "--no-prefix-cache --cache-dir /tmp",
        "--no-prefix-cache --snapshot-every 64",
        "--no-prefix-cache --kv-cache-quantization",
        "--dtype int3",
        "--timeout 0",
        "--hang-seconds 0",
        "--workers 0",
        "--queue-limit 0",
        "--max-body-mb 0",
        "--log-level loud",
        "--media-path /no/such/directory",
        "--cors-origin localhost",
        "--cors-origin http://localhost/",
        "--allowed-host http://here",
        "--allowed-host box.*",
        "--max-model-len -5",
        "--max-model-len much",
        "--seed one",
        "--generation-config /no/such/place",
        "--limit-mm-per-prompt image",
        "--limit-mm-per-prompt image=-1",
        "--limit-mm-per-prompt [1]",
        '--limit-mm-per-prompt {"picture":1}',
        "--root-path llm",
        "--root-path /a?b",
        "--chat-template /no/such/file",
        "--chat-template-file /no/such/file",
        "--default-chat-template-kwargs [1]",
        "--default-chat-template-kwargs {",
        '--default-chat-template-kwargs {"messages":1}',
        "--allowed-origins [1]",
        "--allowed-origins localhost",
        "--temp -1",
        "--model-alias nothing",
        "--model-alias =a",
        "--served-model-name",
        "--frobnicate",
        "--frobnicate 3",
        "--maximum-num 3",
        "--hang 45",  # no abbreviations: a new flag would change what they mean
    ],
)
def test_a_wrong_value_is_told_in_one_line(said: str, capsys: Capture) -> None:
    assert said.split()[0] in refused(capsys, "org/model", *said.split())


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (["--model-alias", "gpt-4=gpt-5"], "not served under that name"),
        (["--served-model-name", "a", "--model-alias", "*=org/model"], "not served"),
        (["--served-model-name", "a\nb"], "printable"),
        (["--served-model-name", " "], "printable"),
        (["--allowed-media-domains", "a.org"], "--allow-remote-media"),
        (["another", "--served-model-name", "a"], "NAME=MODEL"),
        (["a/model", "b/model", "a/model"], "Two models are called a/model"),
        (["another", "--pin", "third"], "--pin third"),
        (["another", "--model-alias", "x=third"], "--model-alias x=third"),
        (["another", "--keep-alive", "soon"], "--keep-alive"),
        (["another", "--chat-template", "{{ messages }}"], "--chat-template is one model's"),
    ],
)
def test_what_does_not_go_together_is_told(said: list[str], told: str, capsys: Capture) -> None:
    assert told in refused(capsys, "org/model", *said)


def test_several_models_and_directories_of_them(
    served: list[ServerOptions], tmp_path: Path
) -> None:
    for name in ("b", "a", "none"):
        (tmp_path / name).mkdir()
    for name in ("a", "b"):
        (tmp_path / name / "config.json").write_text("{}")
    options = made(served, "org/one", "--port", "0", "two=org/2", str(tmp_path), "--pin", "a")
    assert [(spec.model, spec.name) for spec in options.models] == [
        ("org/one", None),
        ("org/2", "two"),
        (str(tmp_path / "a"), "a"),
        (str(tmp_path / "b"), "b"),
    ]
    assert (options.engine.model, options.pinned) == ("org/one", ("a",))


@pytest.mark.parametrize(
    ("said", "seconds"),
    [("90", 90.0), ("90s", 90.0), ("1.5m", 90.0), ("2h", 7200.0), ("0", 0.0), ("never", math.inf),
     ("-1", math.inf)],
)  # fmt: skip
def test_one_model_stays_unless_a_time_is_said(
    served: list[ServerOptions], said: str, seconds: float
) -> None:
    assert made(served, "org/model").models == ()
    options = made(served, "org/model", f"--keep-alive={said}")
    assert [spec.model for spec in options.models] == ["org/model"]
    assert options.keep_alive == seconds


def test_with_what_was_downloaded_a_single_model_comes_and_goes(
    served: list[ServerOptions],
) -> None:
    options = made(served, "org/model", "--downloaded")
    assert options.downloaded
    assert [spec.model for spec in options.models] == ["org/model"]
    assert not made(served, "org/model").downloaded


def test_a_model_that_a_list_swallowed_is_missed(capsys: Capture) -> None:
    """Otherwise another model would be served under its name."""
    assert "put MODEL before it" in refused(capsys, "--served-model-name", "a", "org/model")


def test_an_empty_model_is_not_the_small_one(capsys: Capture) -> None:
    assert "MODEL is empty" in refused(capsys, "")


# -- as users run it -------------------------------------------------------------------------


def test_help_is_grouped_and_shows_our_flags_only() -> None:
    done = command("serve", "--help")
    assert done.returncode == 0
    assert not done.stderr
    for group in ("model:", "address and access:", "load and memory:", "logs, on stderr:"):
        assert f"\n{group}\n" in done.stdout
    assert "--max-num-seqs" in done.stdout
    assert "--continuous-batching" not in done.stdout
    assert "engine." not in done.stdout


def test_a_bad_flag_ends_the_command() -> None:
    done = command("serve", "--frobnicate")
    assert done.returncode == 2
    assert done.stderr == "bushel: unrecognized arguments: --frobnicate (see bushel serve --help)\n"


def test_the_version_is_told() -> None:
    done = command("--version")
    assert done.returncode == 0
    assert done.stdout.startswith("bushel ")


# -- engine options: each is defined once, in `EngineOptions` -----------------------------------

NOT_SET_BY_FLAGS = {"model", "beside"}  # the positional argument; what is worked out at the start


def engine_flags(parser: argparse.ArgumentParser) -> dict[str, list[argparse.Action]]:
    """The flags that the help shows, by the engine option they set."""
    found: dict[str, list[argparse.Action]] = {}
    for action in parser._actions:
        place, _, option = action.dest.partition(".")
        if place == "engine" and action.option_strings and action.help != argparse.SUPPRESS:
            found.setdefault(option, []).append(action)
    return found


def contradictions(parser: argparse.ArgumentParser) -> list[str]:
    """What flags say of engine options that the dataclass does not."""
    options = {field.name: field.default for field in fields(EngineOptions)}
    flags = engine_flags(parser)
    wrong = [f"{name}: no flag" for name in options.keys() - NOT_SET_BY_FLAGS - flags.keys()]
    wrong += [f"{name}: no option" for name in flags.keys() - options.keys()]
    for name, actions in flags.items():
        if len(actions) > 1:
            wrong.append(f"{name}: several flags")
        for action in actions:
            default = options.get(name)
            if action.default is not argparse.SUPPRESS:
                wrong.append(f"{name}: a default of its own")
            if action.nargs == 0 and action.const is default:
                wrong.append(f"{name}: changes nothing")
            shown = re.search(r"\(default: ([0-9.]+)\)", action.help or "")
            if shown is not None and shown[1] != str(default):
                wrong.append(f"{name}: {shown[1]} is not its default")
    return wrong


def serve_parser() -> argparse.ArgumentParser:
    return flags.add(argparse.ArgumentParser().add_subparsers())


def test_every_engine_option_has_one_flag_and_one_default(served: list[ServerOptions]) -> None:
    assert contradictions(serve_parser()) == []
    assert made(served).engine == EngineOptions(TINY)
    assert set(flags._ORDERS.values()) == set(get_args(Order))


@pytest.mark.parametrize(
    ("flag", "more"),
    [
        ("--rows", {"dest": "engine.rows"}),
        ("--batch", {"dest": "engine.max_batch"}),
        ("--beside", {"dest": "engine.beside", "default": 1}),
        ("--beside", {"dest": "engine.beside", "help": "bytes (default: 7)"}),
        ("--beside", {"dest": "engine.beside", "action": "store_const", "const": 0}),
    ],
)
def test_control_a_second_definition_of_an_engine_option_is_seen(
    flag: str, more: dict[str, Any]
) -> None:
    parser = serve_parser()
    parser.add_argument(flag, **{"default": argparse.SUPPRESS, **more})
    assert len(contradictions(parser)) == 1


# -- the front -------------------------------------------------------------------------------------

LOADED = "import sys; print(*(it for it in ('mlx', 'mlx_lm', 'mlx_vlm') if it in sys.modules))"


def test_the_front_does_not_load_mlx() -> None:
    """Nothing that `bushel serve` imports does."""
    line = [sys.executable, "-c", f"import bushel.cli, bushel.server.run; {LOADED}"]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_control_loading_mlx_is_noticed() -> None:
    line = [sys.executable, "-c", f"import bushel.llm; {LOADED}"]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    assert "mlx" in done.stdout.split()
