"""What the small model is taught, checked without the tool that trains it."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from transformers import AutoTokenizer

import bushel
from tools.tiny.chat import Check, encode, render, text_of
from tools.tiny.config import IM_END, IMAGE_PAD, SPECIAL, Sizes
from tools.tiny.evaluate import cases
from tools.tiny.pack import Packer, Shape, maker
from tools.tiny.questions import QUESTIONS, SECOND
from tools.tiny.scene import KINDS, Picture
from tools.tiny.score import ends_with, right, well_thought
from tools.tiny.tasks import mix, recall, talk, toolbox
from tools.tiny.tasks.catalogue import CLOSE
from tools.tiny.tokens import pieces, read_tokenizer, worn_tokenizer
from tools.tiny.words import NAMES, Draw, held_out

TINY = Path(str(bushel.__file__)).parent / "tiny"
ROOT = Path(__file__).parents[2]
SOME = range(150)


@pytest.fixture(scope="module")
def tokenizer():
    return read_tokenizer(TINY)


def test_the_same_seed_tells_the_same_conversation() -> None:
    for seed in range(30):
        first, second = talk(Draw(seed)), talk(Draw(seed))
        assert text_of(first) == text_of(second)
        assert all(
            np.array_equal(a.patches(), b.patches())
            for a, b in zip(first.pictures, second.pictures, strict=True)
        )
    assert text_of(talk(Draw(1))) != text_of(talk(Draw(2)))


def test_words_of_training_never_occur_in_the_evaluation() -> None:
    train, other = Draw("words"), Draw("words", held=True)
    seen = {train.made_word() for _ in range(2000)}
    unseen = {other.made_word() for _ in range(400)}
    assert len(seen) > 1500
    assert not seen & unseen
    assert not any(held_out(word) for word in seen)
    pattern = "[What|Which] [colour|color|hue] [is|has] [it|this|that][?|]"
    assert not {train.say(pattern) for _ in range(500)} & {other.say(pattern) for _ in range(500)}


def test_words_made_of_tokens_keep_to_their_side(tokenizer) -> None:
    letters = pieces(tokenizer)
    draw = Draw("pieces", pieces=letters)
    made = {draw.word() for _ in range(4000)}
    assert not any(held_out(word) for word in made)
    names = {draw.name() for _ in range(2000)}
    assert not any(held_out(name) and held_out(name.lower()) for name in names)
    assert not any(held_out(name) for name in names & set(NAMES))
    used = {token for word in made for token in tokenizer.encode(word).tokens}
    plain = Draw("pieces")
    usual = {token for _ in range(4000) for token in tokenizer.encode(plain.word()).tokens}
    assert len(used & set(letters)) > len(usual & set(letters)) + 200


@pytest.mark.parametrize("held", [False, True])
def test_a_third_of_the_facts_name_the_value_first(held: bool) -> None:
    """On both sides: phrasings are split by hash, which must not decide how hard a side is."""
    first = []
    for seed in range(600):
        draw = Draw(f"facts {seed}", held)
        fact = recall.facts(draw, 1)[0]
        told = fact.told(draw, True)
        if fact.attribute in told:
            first.append(told.rindex(fact.value) < told.index(fact.attribute))
    assert 0.25 < sum(first) / len(first) < 0.4


def test_ending_with_a_mark_takes_an_answer_before_it_and_nothing_after() -> None:
    assert ends_with("It is red. over", "over")
    assert ends_with("A thought.\n</think>\n\nIt is red. over", "over")
    assert not ends_with("over", "over")
    assert not ends_with("It is red. over.", "over")
    assert not ends_with("It is red.", "over")


def test_every_answer_passes_its_own_check() -> None:
    """The reply that is trained is right by the score that judges it."""
    for seed in SOME:
        one = talk(Draw(f"check {seed}"))
        last = one.messages[-1]
        reply = last["content"]
        if one.thinking:
            reply = f"{last['reasoning_content']}\n</think>\n\n{reply}"
            assert well_thought(reply)
        assert right(reply, one.check), (one.kind, reply, one.check)


def test_control_another_answer_does_not_pass() -> None:
    for seed in SOME:
        one = talk(Draw(f"check {seed}"))
        assert not right("<tool_call>\n#\n</tool_call>", one.check)


def test_only_replies_are_trained(tokenizer) -> None:
    for seed in SOME:
        one = talk(Draw(seed))
        encoded = encode(one, tokenizer)
        taught = tokenizer.decode(
            [token for token, on in zip(encoded.ids, encoded.trained, strict=True) if on],
            skip_special_tokens=False,
        )
        answers = [m for m in one.messages if m["role"] == "assistant"]
        assert taught.count(IM_END) == len(answers)
        for message in answers:
            assert str(message["content"]) in taught
        assert "<|im_start|>" not in taught
        places = encoded.ids.count(SPECIAL.index(IMAGE_PAD))
        assert places == sum(picture.tokens for picture in one.pictures)


def test_prompt_tokens_are_those_that_were_trained_on(tokenizer) -> None:
    """The generation prompt must not tokenise differently from the whole conversation."""
    for seed in SOME:
        one = talk(Draw(seed))
        if one.pictures:
            continue
        options = {"tool_format": one.tool_format, "enable_thinking": one.thinking}
        prompt = render(one.messages[:-1], one.tools, add_generation_prompt=True, **options)
        ids = tokenizer.encode(prompt, add_special_tokens=False).ids
        assert encode(one, tokenizer).ids[: len(ids)] == ids


def test_template_is_rendered_as_transformers_renders_it() -> None:
    hf = AutoTokenizer.from_pretrained(TINY)
    hf.chat_template = (ROOT / "tools" / "tiny" / "template.jinja").read_text()
    for seed in SOME:
        one = talk(Draw(seed))
        if one.pictures:
            continue
        for prompt in (False, True):
            options = {"tool_format": one.tool_format, "add_generation_prompt": prompt}
            theirs = hf.apply_chat_template(one.messages, one.tools, tokenize=False, **options)
            assert render(one.messages, one.tools, **options) == theirs


CALL = {"name": "look_up", "arguments": {"word": "größe", "limit": 3}}


@pytest.mark.parametrize("arguments", [CALL["arguments"], json.dumps(CALL["arguments"])])
def test_tool_arguments_may_be_an_object_or_its_json(arguments) -> None:
    call = {"type": "function", "function": {"name": "look_up", "arguments": arguments}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    text = render([{"role": "user", "content": "a"}, message])
    body = text.split("<tool_call>\n")[1].split("\n</tool_call>")[0]
    assert json.loads(body) == CALL


def test_calls_are_written_as_parameters_on_request() -> None:
    message = {"role": "assistant", "content": "", "tool_calls": [{"function": CALL}]}
    tools = [{"type": "function", "function": {"name": "look_up"}}]
    text = render([message], tools, tool_format="xml")
    assert "<function=look_up>\n<parameter=word>\ngröße\n</parameter>" in text
    assert "<parameter=limit>\n3\n</parameter>\n</function>\n</tool_call>" in text


def test_thinking_is_off_unless_asked_for() -> None:
    asked = [{"role": "user", "content": "a"}]
    assert render(asked, add_generation_prompt=True).endswith("<|im_start|>assistant\n")
    on = render(asked, add_generation_prompt=True, enable_thinking=True)
    assert on.endswith("<|im_start|>assistant\n<think>\n")


def test_system_messages_are_taken_anywhere_and_thoughts_of_old_turns_dropped() -> None:
    text = render(
        [
            {"role": "developer", "content": "one"},
            {"role": "user", "content": ["two", {"type": "text", "text": "three"}]},
            {"role": "assistant", "content": "<think>\nold\n</think>\n\nfour"},
            {"role": "system", "content": "five"},
            {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "six"}]},
            {"role": "assistant", "reasoning_content": "new", "content": "seven"},
        ]
    )
    found = [
        text.index(word) for word in ["one", "two", "three", "four", "five", "six", "new", "seven"]
    ]
    assert found == sorted(found)
    assert "old" not in text
    assert "<|vision_start|><|image_pad|><|vision_end|>six" in text


def test_tool_results_are_told_together() -> None:
    results = [{"role": "tool", "content": word} for word in ("first", "second")]
    text = render([{"role": "user", "content": "a"}, *results])
    assert text.count("<|im_start|>user") == 2
    assert text.count("<tool_response>") == 2


@pytest.mark.parametrize(
    "text",
    ["naïve café 東京 🍣 👩‍🌾", "Ünïcødé", 'get_weather {"a": [1, 2.5, null]}', " \t\n\n x  y\r\n"],
)
def test_tokenizer_gives_back_every_text(tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text


def test_a_word_has_the_same_tokens_wherever_it_stands(tokenizer) -> None:
    draw = Draw("tokens")
    for _ in range(50):
        name = draw.name()
        alone = tokenizer.encode(name).ids
        for around in ("is {}.", '"{}"', "({}, a)", "<{}>\n", "{}'s", "_{}_"):
            ids = tokenizer.encode(around.format(name)).ids
            assert any(ids[at : at + len(alone)] == alone for at in range(len(ids)))


def test_a_worn_tokenizer_cuts_words_otherwise_and_loses_nothing(tokenizer) -> None:
    worn = worn_tokenizer(TINY, 1)
    texts = [text_of(talk(Draw(f"worn {seed}"))) for seed in range(20)]
    assert all(
        worn.decode(worn.encode(text).ids, skip_special_tokens=False) == text for text in texts
    )
    assert sum(worn.encode(text).ids != tokenizer.encode(text).ids for text in texts) > 15


def test_a_told_value_keeps_its_letters() -> None:
    """The answer copies it, so a capital at the start of a sentence would be a riddle."""
    for seed in SOME:
        one = mix.recall_system(Draw(f"told {seed}"))
        (value,) = one.check.expected
        assert value == "not told" or value in one.messages[0]["content"]


def test_tools_that_one_request_could_mean_are_not_offered_together() -> None:
    seen = 0
    for seed in range(300):
        kins = [offer.kin for offer in toolbox.offers(Draw(f"kin {seed}"), 5) if offer.kin in CLOSE]
        assert len(kins) == len(set(kins))
        seen += len(kins)
    assert seen > 50


def test_markup_survives_decoding_and_control_tokens_do_not() -> None:
    hf = AutoTokenizer.from_pretrained(TINY)
    ids = hf.encode("<think>a</think><tool_call>b</tool_call><|im_end|>", add_special_tokens=False)
    text = hf.decode(ids, skip_special_tokens=True)
    assert text == "<think>a</think><tool_call>b</tool_call>"


def test_pictures_are_cut_as_the_processor_cuts_them() -> None:
    from mlx_vlm.models.qwen3_vl.processing_qwen3_vl import Qwen3VLImageProcessor

    from tools.tiny.config import preprocessor_config

    settings = preprocessor_config(Sizes())
    processor = Qwen3VLImageProcessor(**{k: v for k, v in settings.items() if k[-5:] != "class"})
    seen = 0
    for seed in range(90):
        for picture in talk(Draw(f"cut {seed}")).pictures:
            theirs = processor([picture.image])
            assert theirs["image_grid_thw"].tolist() == [[1, *picture.grid]]
            pixels = np.asarray(theirs["pixel_values"]).reshape(-1, 3, 2, 16 * 16)[:, :, 0]
            mine = picture.patches().reshape(-1, 3, 16 * 16) / 127.5 - 1
            assert np.abs(pixels - mine).max() < 1e-5
            seen += 1
    assert seen > 20


def test_image_tokens_are_labelled_with_what_they_show() -> None:
    labelled = 0
    for seed in range(40):
        for picture in talk(Draw(f"cells {seed}")).pictures:
            cells = picture.cells()
            assert cells.shape == (picture.tokens, 2)
            kinds = {KINDS[kind] for kind in cells[:, 0] if kind > 0}
            assert kinds <= {name for name, _, _ in picture.boxes}
            labelled += len(kinds)
    assert labelled > 20


def test_rows_hold_whole_conversations(tokenizer) -> None:
    shape = Shape(rows=2, length=1024, pictures=10)
    arrays, placed = Packer(maker("rows", False), tokenizer, shape, Sizes()).shard()
    assert (arrays["document"] > 0).mean() > 0.8
    for row, document, one in placed:
        mine = arrays["document"][row] == document
        encoded = encode(one, tokenizer)
        assert arrays["ids"][row][mine].tolist() == encoded.ids
        assert arrays["place"][row][mine].tolist() == list(range(len(encoded.ids)))
        assert arrays["trained"][row][mine].tolist() == encoded.trained
    pads = np.flatnonzero(arrays["ids"] == SPECIAL.index(IMAGE_PAD))
    used = arrays["target"][arrays["target"] >= 0]
    assert sorted(used.tolist()) == pads.tolist()


@pytest.mark.long
def test_questions_written_by_hand_are_not_those_of_the_generator() -> None:
    mine = {question.asked.lower().strip(" ?.!") for question in (*QUESTIONS, *SECOND)}
    assert len(QUESTIONS) == len(SECOND) == 100
    assert len(mine) == 200
    for seed in range(1500):
        for message in talk(Draw(f"verbatim {seed}")).messages:
            content = message["content"]
            if isinstance(content, list):
                content = next((part["text"] for part in content if "text" in part), "")
            assert message["role"] != "user" or content.lower().strip(" ?.!") not in mine


@pytest.mark.long
def test_evaluation_asks_every_task_from_the_held_out_side() -> None:
    found = {case.task for case in cases(8)}
    assert {"colour", "two images", "recall, 4k tokens", "tool call", "written by hand"} <= found


def test_the_package_never_imports_the_training_tool() -> None:
    code = (
        "import sys, bushel, tools.tiny.tasks, tools.tiny.tokens; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_pictures_have_their_processor_size() -> None:
    from PIL import Image

    for size, grid in (((64, 64), (8, 8)), ((256, 256), (12, 12)), ((256, 128), (8, 16))):
        assert Picture(Image.new("RGB", size), []).grid == grid


def test_an_agent_reads_the_file_it_is_asked_for_and_says_what_is_in_it() -> None:
    for seed in SOME:
        one = mix.agent_talk(Draw(f"agent {seed}"), 2_000, 1)
        names = [tool["function"]["name"] for tool in one.tools]
        call, result = one.messages[-3], one.messages[-2]
        (function,) = [it["function"] for it in call["tool_calls"]]
        arguments = function["arguments"]
        arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
        (argument,) = arguments.values()
        asked = next(message for message in one.messages if message["role"] == "user")["content"]
        assert function["name"] in names
        assert argument.removeprefix("cat ") in asked
        if one.messages[-1]["content"].startswith("It says: "):
            assert all(line in one.messages[-1]["content"] for line in one.check.expected)
            shown = result["content"].replace("\\", "")
            assert all(line.replace("\\", "") in shown for line in one.check.expected)


def test_a_verdict_counts_only_when_it_is_the_one_given() -> None:
    assert right("Red and red, so yes.", Check("yes", True))
    assert not right("Yes, no.", Check("yes", True))
    assert right("A star and a ring, so the second one.", Check("which", "second"))
    assert not right("The first and the second.", Check("which", "second"))
    assert right("I see a red star and a blue ring, so it is red.", Check("last", ["red", "blue"]))
    assert not right("I see a red star and a blue ring.", Check("last", ["red", "blue"]))
