"""Ways of putting rows together. Each returns what the comparison found.

A scenario that did not bring about what it is named after reports that as a fault.
"""

from collections.abc import Callable
from functools import partial

from bushel.core.options import Attention
from bushel.text.detokenizer import Decode

from ..families import text, vision
from ..families.family import EVERY as ALL_FAMILIES
from ..families.text import TEXT
from ..families.vision import VISION
from ..llm.request_builders import stop_string
from .run import Result, Run
from .subject import (
    FEW_ROWS,
    FEW_TOKENS,
    LONGEST,
    NAMES,
    ONE_TOKEN,
    ROWS,
    WRAPPING_TOKENS,
    Subject,
    subject,
)

Scenario = Callable[[Subject], Result]
# Kinds that are copied in a way of their own, and of which no prefix is reused.
OPAQUE = {"chunked"}


def together(subject: Subject, chunk: int) -> Result:
    """Eight lengths submitted at once; small chunks make them join one after the other."""
    with Run(subject, chunk) as run:
        for at in range(ROWS):
            run.submit(at)
        run.until(lambda: False)
        largest = max(end - start for _, start, end in run.watch.pieces)
        run.require(largest <= chunk or not subject.cuts_images, f"a chunk of {largest}")
        return run.finish()


def staggered(subject: Subject) -> Result:
    """Rows join a batch that is already decoding, at different ages."""
    with Run(subject, 64) as run:
        for at in range(ROWS):
            run.submit(at)
            run.step(3)
        return run.finish()


def churn(subject: Subject, attention: Attention = "auto", *, drafts: bool = False) -> Result:
    """All of it in one run: prompts in small chunks, rows that come and rows that go."""
    with Run(subject, 8, attention=attention, drafts=drafts) as run:
        for at in range(len(subject.rows)):
            count = subject.tokens - 2 * at
            run.submit(at, max_tokens=count, count=count)
            run.step(2)
        return run.finish()


def leaves(subject: Subject, attention: Attention = "auto", *, drafts: bool = False) -> Result:
    """Rows end in every way there is, down to one row alone, which others join again."""
    every = sum(len(row.ids) for row in subject.rows)
    with Run(subject, max(512, every), at_once=True, attention=attention, drafts=drafts) as run:
        word_row, word, before = _stop_string(subject, run.watch.model.tokenizer.decode)
        token_row, at_token = _new_token(subject, word_row)
        stop_id = subject.rows[token_row].tokens[at_token]
        gone = {word_row, token_row, ONE_TOKEN}
        aborted, *others = [at for at in range(ROWS) if at not in gone]
        run.submit(token_row, reason="stop", count=at_token + 1, stop_token_ids=[stop_id])
        by_word = run.submit(word_row, reason="stop", count=None, stop=word)
        by_abort = run.submit(aborted, reason="abort", count=None)
        run.submit(ONE_TOKEN)
        for n, at in enumerate(others):
            run.submit(at, max_tokens=9 + 3 * n, count=9 + 3 * n)
        run.until(lambda: len(by_abort.output.token_ids) >= 3)
        by_abort.abort()
        run.until(lambda: run.watch.batches[-3:] == [1, 1, 1])
        for at in others:
            run.submit(at)
            run.step(2)
        run.until(lambda: False)
        run.require(word not in by_word.output.text, "a stop string is shown")
        run.require(len(by_word.output.token_ids) <= before + 1, "a stop string is passed over")
        sizes = {1} if subject.single else {1, 2, 4, 8}
        run.require(set(run.watch.batches) >= sizes, "the batch did not shrink to one row")
        return run.finish()


def fork(subject: Subject, attention: Attention = "auto", *, drafts: bool = False) -> Result:
    """Several choices of one prompt: all but the first start from a snapshot."""
    with Run(subject, 64, attention=attention, drafts=drafts) as run:
        run.submit(3)
        run.submit(LONGEST, n=2)
        run.submit(ONE_TOKEN, n=2)
        run.step(6)
        run.submit(0, n=2)
        run.submit(len(subject.rows) - 1)
        return run.finish()


def in_turn(subject: Subject) -> Result:
    """Prompts are prefilled a chunk each in turn: each is embedded between others' chunks."""
    with Run(subject, 8, in_turn=True) as run:
        return _between_chunks(run)


def garbage(subject: Subject) -> Result:
    """In turn; before every submit, step and call of the model, its positions are overwritten."""
    with Run(subject, 8, in_turn=True, garbage=True) as run:
        return _between_chunks(run)


def _between_chunks(run: Run) -> Result:
    subject = run.subject
    for at in range(len(subject.rows)):
        run.submit(at)
    run.until(lambda: False)
    if subject.sees:
        in_order = subject.single or subject.ahead  # a prompt after the other, or each at once
        between = run.watch.embedded_between or in_order
        run.require(between, "no image came between another's chunks")
        run.require(run.watch.cut_an_image == subject.cuts_images, "images were not cut")
    return run.finish()


def again(subject: Subject, attention: Attention = "auto", *, drafts: bool = False) -> Result:
    """Rows that come and go leave their state behind; sent again, each computes one token (B32)."""
    with Run(subject, 8, reuse=True, attention=attention, drafts=drafts) as run:
        for at in range(len(subject.rows)):
            count = subject.tokens - 2 * at
            run.submit(at, max_tokens=count, count=count)
            run.step(2)
        run.until(lambda: False)
        stats, before = run.llm.cache_stats(), run.watch.tokens
        first = len(run.sent)
        for at in range(len(subject.rows)):
            run.submit(at)
            run.step(1)
        run.until(lambda: False)
        expected = 0
        for sent in run.sent[first:]:
            usage = sent.handle.output.usage
            length, cached = usage.prompt_tokens, usage.cached_tokens
            most = max(0, length - 1) if stats["on"] else 0
            run.require(cached == most, f"{cached} of {length} tokens were cached")
            ahead = subject.ahead if length > 1 else 0
            expected += length - cached + subject.tokens - 1 + ahead
        computed = run.watch.tokens - before
        if not drafts:  # those that do not hold are computed too
            run.require(computed == expected, f"{computed} tokens were computed, not {expected}")
        run.require(stats["on"] or bool(stats["why"]), "nobody says why nothing is reused")
        run.llm.check_integrity()
        return run.finish()


def _new_token(subject: Subject, taken: int) -> tuple[int, int]:
    """A row but `taken`, and where a token comes in it for the first time, after a few others."""
    for at in (LONGEST, *range(ROWS)):
        tokens = subject.rows[at].tokens
        found = [n for n in range(3, 12) if tokens[n] not in tokens[:n]]
        if found and at not in (taken, ONE_TOKEN):
            return at, found[0]
    raise AssertionError(f"no reply of {subject.name} has a token to stop at")


def _stop_string(subject: Subject, decode: Decode) -> tuple[int, str, int]:
    """A row, a text that one of its tokens writes, and which token that is."""
    for at, row in enumerate(subject.rows):
        places = range(2, 8) if at != ONE_TOKEN else ()
        if (found := stop_string(row.tokens, decode, places)) is not None:
            return at, *found
    raise AssertionError(f"no reply of {subject.name} has a text to stop at")


EVERY: dict[str, Scenario] = {
    "chunk 512": partial(together, chunk=512),
    "chunk 64": partial(together, chunk=64),
    "chunk 8": partial(together, chunk=8),
    "staggered": staggered,
    "leaves": leaves,
    "fork": fork,
    "churn": churn,
    "again": again,
    "in turn": in_turn,
}


def scenarios(name: str) -> dict[str, Scenario]:
    """All that apply to a family: garbage to those that keep positions on the model."""
    found = dict(EVERY)
    family = TEXT[name] if name in TEXT else VISION[name]
    if family.equal_chunks:  # it expects tokens that follow a prompt in one piece
        del found["leaves"]
        del found["again"]  # and so cannot begin in the middle of one
    if name in VISION and VISION[name].keeps_positions:
        found["garbage"] = garbage
    return found


# Beside those that stand for others, what one of them has: layers that share keys, learned
# positions, a cache that is never written, two caches of a layer, one picture at most, and so on.
LIKE_NO_OTHER = (
    *("qwen3", "gpt2", "gemma2", "nanbeige", "nemotron-nas", "qwen3_moe", "hunyuan", "phimoe"),
    *("gemma3n", "iquestloopcoder", "mimo_v2_flash", "plamo3", "llama4"),
    *("qwen3_next", "nemotron_h", "kimi_linear", "baichuan_m1", "gear", "mamba", "plamo2"),
    *("prism_hadamard_qwen35", "deepseek_v32", "longcat_flash_ngram", "deepseek_v41"),
    *("afm7", "gpt_bigcode", "internlm3", "nemotron-nas-linear"),
    *("hy_v4", "minimax_m3", "minimax_m3_vl-text", "minimax_m3_vl"),
    *("glm4v", "glm_ocr", "paddleocr_vl", "ernie4_5_moe_vl", "cohere_compass", "mllama"),
    "hunyuan_vl",
    *("minicpmo", "minicpmv4_6", "minicpmv4_7", "gemma4_vl", "idefics2"),
    *("glm5_next", "deepseek_v4", "qwen4_exp"),
    *("paligemma", "zaya1_vl", "phi4mm", "molmo", "step3p7"),
    *("granite4_vision", "llama4_vl", "z1t"),
    *("mistral3_ministral3", "mistral3_mistral4", "phi3_v_long", "inkling"),
)


def tried() -> tuple[str, ...]:
    """Families that the tests try; all of them with BUSHEL_TEST_FAMILIES=all."""
    few = {*text.CORE, *vision.EXEMPLARS, *LIKE_NO_OTHER}
    few |= {name for name, family in TEXT.items() if family.packed}
    return NAMES if ALL_FAMILIES else tuple(name for name in NAMES if name in few)


# One of every kind of state, alone and in company, and of every way to place an image.
WHOLE = (
    *("llama", "llama_sliding", "qwen3_5", "mamba2", "falcon_h1", "recurrent_gemma"),
    *("deepseek_v3", "qwen3_5_vl", "gemma3_vl", "smolvlm"),
)


def short(name: str) -> bool:
    """Whether the tests try a family with few rows, in what is hardest for it.

    The others stand for it, because its layers keep their state as theirs do.
    """
    return name not in ((*text.CORE, *vision.EXEMPLARS) if ALL_FAMILIES else WHOLE)


def shortened(name: str) -> Subject:
    kinds = (TEXT[name] if name in TEXT else VISION[name]).kinds
    goes_on = {"kv", "recurrent", "composite"}  # as it began, however long it gets
    return subject(name, FEW_TOKENS if goes_on.issuperset(kinds) else WRAPPING_TOKENS, FEW_ROWS)


def selected(name: str) -> list[str]:
    """What the tests run of a family; `make parity` runs all of every family."""
    found = list(scenarios(name))
    if not short(name):
        # `again` begins with churn: all rows in the smallest chunks, joining at all ages; and
        # `leaves` with all rows at once, in whole prompts.
        covered = {"churn", "staggered", "chunk 64", "chunk 8", "chunk 512"}
        # Prompts in turn are for what is embedded between another's chunks; so is garbage.
        covered |= {"in turn"} if name in TEXT or "garbage" in found else set()
        return [title for title in found if title not in covered]
    if name in VISION:
        whole = "again" if "again" in found else "churn"
        # Others keep nothing of a prompt on the model.
        placed = ["garbage"] if "garbage" in found else []
        return ["fork" if VISION[name].single else whole, *placed]
    if OPAQUE & set(TEXT[name].kinds):
        return ["churn", "fork"]
    return ["churn" if TEXT[name].equal_chunks else "again"]
