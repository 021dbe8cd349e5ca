"""Copying, sorting, small sums, and text of many alphabets to echo."""

from __future__ import annotations

from tools.tiny.chat import Check
from tools.tiny.tasks.base import Exchange, brief, dressed, listed
from tools.tiny.words import Draw

_ECHO = (
    "[Repeat|Say|Echo|Copy|Write|Print|Output|Type|Reproduce][ this| exactly| after me| this text|"
    " the following| back to me|]: {t}",
    "[Repeat|Echo|Copy|Write down|Say] [the text|the words|the line|the sentence|the phrase] "
    '"{t}"[.|]',
    '[Can|Could|Would] you [please |][repeat|say|echo|write] "{t}"[ for me|]?',
    "[Write|Repeat|Print|Echo|Copy|Type] [these|the following|those|the next] [words|terms|letters|"
    "pieces][ again| now| as they are|]: {t}",
    "{t}\n\n[Repeat|Copy|Echo] the [text|line] above[ exactly|].",
    "[I want you to|Please] [say|write|repeat] '{t}'[ and nothing else|].",
)
_RANGES = (
    (0x00E0, 0x00FF), (0x0100, 0x017E), (0x03B1, 0x03C9), (0x0430, 0x044F), (0x05D0, 0x05EA),
    (0x0621, 0x064A), (0x3041, 0x3093), (0x30A1, 0x30F6), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3),
    (0x0905, 0x0939), (0x1F300, 0x1F3F0), (0x1F400, 0x1F4FF), (0x1F600, 0x1F64F), (0x2190, 0x21FF),
    (0x1F680, 0x1F6C5), (0x1F910, 0x1F9FF), (0x2010, 0x2027), (0x00A1, 0x00BF), (0x0E01, 0x0E2E),
)  # fmt: skip
EMOJI = "🍎🍐🌾🚀🎉👍😀😎🔥🌟🐝🐢🦊🍀🌈🎈☕🍕⚡🐙🌻🦉🎵✅❤🐼🍋🐬🌙🍇"


def foreign(draw: Draw) -> str:
    words = []
    for _ in range(draw.between(1, 3)):
        low, high = draw.pick(_RANGES)
        words.append("".join(chr(draw.between(low, high)) for _ in range(draw.between(1, 5))))
    if draw.chance(0.4):
        words.append(draw.pick(EMOJI))
    if draw.chance(0.3):
        words.append(draw.word())
    draw.rng.shuffle(words)
    return " ".join(words)


def text_to_copy(draw: Draw) -> str:
    dice = draw.rng.random()
    if dice < 0.3:
        return foreign(draw)
    if dice < 0.55:
        return " ".join(draw.word() for _ in range(draw.between(1, 6)))
    if dice < 0.75:
        return draw.sentence()
    if dice < 0.9:
        return draw.codeword()
    return " ".join(draw.number(1, 5) for _ in range(draw.between(1, 5)))


def echo(draw: Draw) -> Exchange:
    text = text_to_copy(draw)
    asked = draw.say(draw.pick(_ECHO), t=text)
    return Exchange("echo", asked, text, "I write the text exactly.", Check("exact", text))


_TIMES = '[Write|Say|Repeat|Type|Print] [the word |]"{t}" [{n}] times[, separated by spaces|].'
_NUMBER_WORDS = {2: "two", 3: "three", 4: "four", 5: "five"}


def several_times(draw: Draw) -> Exchange:
    word, count = draw.word(), draw.between(2, 5)
    said = draw.pick((str(count), _NUMBER_WORDS[count]))
    asked = draw.say(_TIMES.replace("[{n}]", "{n}"), t=word, n=said)
    text = " ".join([word] * count)
    thought = f"{word}, {count} times."
    return Exchange("echo", asked, text, thought, Check("exact", text))


_SORT = (
    "[Sort|Order|Arrange|Put in order] [these|the following|the|] {what} [in ascending order|"
    "from smallest to largest|in increasing order|ascending|from low to high]: {l}",
    "[Sort|Order|Arrange] [these|the following|the|] {what}: {l}",
    "{l}\n\n[Sort|Order] [these|the] {what}[ from small to large|].",
    "[Sort|Order|Arrange] [the |these |]{what} {l} [for me|please|now][, smallest first|, from "
    "small to "
    "large|, the smallest first|, lowest first|].",
    "[Can|Could] you [sort|order] [these|the] {what}: {l}?",
)
_SORT_DOWN = (
    "[Sort|Order|Arrange] [these|the following|the|] {what} [in descending order|from largest to "
    "smallest|in decreasing order|from high to low|descending]: {l}",
)
_SORT_WORDS = (
    "[Put|Bring|Arrange] [these|the|the following] words [into|in] [alphabetical order|the order "
    "of the"
    " alphabet]: {l}",
    "[Alphabetical order|Alphabetically], please: {l}",
    "[Sort|Order|Arrange|Put] [these|the following|the|] words [alphabetically|in alphabetical "
    "order|"
    "by alphabet|from A to Z|in alphabetic order]: {l}",
)


def sort(draw: Draw) -> Exchange:
    if draw.chance(0.65):
        numbers = draw.some(range(100 if draw.chance(0.7) else 10), draw.between(3, 4))
        down = draw.chance(0.3)
        ordered = sorted(numbers, reverse=down)
        pattern = draw.pick(_SORT_DOWN if down else _SORT)
        joiner = draw.pick((", ", " ", ", "))
        asked = draw.say(pattern, what="numbers", l=joiner.join(map(str, numbers)))
        answer = ", ".join(map(str, ordered))
    else:
        words: list[str] = []
        while len(words) < 3:
            word = draw.word().lower()
            if word[0] not in {old[0] for old in words}:
                words.append(word)
        asked = draw.say(draw.pick(_SORT_WORDS), l=", ".join(words))
        answer = ", ".join(sorted(words))
    return Exchange("sort", asked, answer, f"In order: {answer}.", Check("says", [answer]))


_SUM = (
    "[What is|What's|Compute|Calculate|How much is|Work out|Tell me|Solve|Evaluate] {e}[?|.|]",
    "{e}[ = ?|=?| =| is|?|]",
    "[Can you|Could you|Please] [compute|calculate|add up|work out|solve] {e}[?|.|]",
    "[How much would|What would|What does] {e} [be|make|give]?",
    "[What do you get for|What do I get if I compute|What comes out of|What results from] {e}?",
    "[I have a question|Homework|A small sum|Maths]: [what is |how much is |]{e}?",
    "[I need|Give me] the [result|value|answer] of {e}[.|, please.|]",
)
_WORDS = {
    "+": ("{a} + {b}", "{a}+{b}", "{a} plus {b}", "the sum of {a} and {b}", "{a} and {b} added"),
    "-": ("{a} - {b}", "{a}-{b}", "{a} minus {b}", "the difference of {a} and {b}", "{a} less {b}"),
    "*": ("{a} * {b}", "{a} x {b}", "{a} times {b}", "the product of {a} and {b}", "{a} \u00d7 {b}",
          "{a} multiplied by {b}"),
}  # fmt: skip


def sums(draw: Draw) -> Exchange:
    sign = draw.pick("++---*")
    if sign == "*":
        a, b = draw.between(0, 12), draw.between(0, 12)
        result = a * b
    else:
        most = draw.pick((10, 20, 100, 100))
        a, b = draw.between(0, most), draw.between(0, most)
        if sign == "-" and b > a:
            a, b = b, a
        result = a + b if sign == "+" else a - b
    expression = draw.pick(_WORDS[sign]).format(a=a, b=b)
    asked = dressed(draw, draw.say(draw.pick(_SUM), e=expression))
    answer = f"{a} {sign} {b} = {result}"
    if draw.chance(0.15):
        asked, answer = brief(draw, asked), str(result)
    thought = f"{a} {sign} {b} is {result}."
    return Exchange("sum", asked, answer, thought, Check("number", str(result)))


_MOST = (
    "[Which|What] [number |]is [the |][largest|biggest|highest|greatest|maximum][ of| among| in|]"
)
_LEAST = "[Which|What] [number |]is [the |][smallest|lowest|least|minimum][ of| among| in|]"


_EXTREME = (
    "[Of|From|Among|Given|We have|Take] {l}[,|:] [which|what|which one] is [the |]{s}?",
    "[Find|Tell me|Give me|Pick|Name|Choose] the {s} [of|among|from] [the numbers |]{l}[.|]",
    "{l}: [which|which one] is [the |]{s}?",
)


def extreme(draw: Draw) -> Exchange:
    numbers = draw.some(range(100), draw.between(2, 5))
    most = draw.chance(0.5)
    pattern = (_MOST if most else _LEAST) + "[:|] [these|the numbers|] {l}?"
    if draw.chance(0.4):
        size = "[largest|biggest|highest|greatest]" if most else "[smallest|lowest|least]"
        pattern = draw.pick(_EXTREME).replace("{s}", size)
    value = max(numbers) if most else min(numbers)
    shown = list(map(str, numbers))
    asked = draw.say(pattern, l=draw.pick((", ".join(shown), listed(shown))))
    word = "largest" if most else "smallest"
    answer = f"The {word} is {value}."
    return Exchange("extreme", asked, answer, f"Sorted: {', '.join(map(str, sorted(numbers)))}.",
                    Check("number", str(value)))  # fmt: skip


_COUNT = (
    "How many words [are in|are there in|has|does] [this|the line|the sentence|this text][ have|"
    "]: {t}",
    "[Count|Please count] the words[ in|]: {t}",
)
_NTH = (
    "[What|Which] is the {n} word [of|in]: {t}",
    "[Give me|Tell me|Write] the {n} word [of|in] [this|the line|the list|the text]: {t}",
)


def words_of(draw: Draw) -> Exchange:
    words = [draw.word() for _ in range(draw.between(2, 7))]
    text = " ".join(words)
    if draw.chance(0.4):
        value = str(len(words))
        asked = draw.say(draw.pick(_COUNT), t=text)
        thought = ", ".join(f"{n + 1} {word}" for n, word in enumerate(words)) + "."
        return Exchange(
            "words", asked, f"There are {value} words.", thought, Check("number", value)
        )
    names = ("first", "second", "third", "fourth")[: len(words)]
    at = draw.pick((*range(len(names)), -1))
    nth = "last" if at == -1 else names[at]
    asked = draw.say(draw.pick(_NTH), n=nth, t=text)
    value = words[at]
    return Exchange("words", asked, value, f"The {nth} word is {value}.", Check("exact", value))


MIND = (
    (echo, 3.0),
    (several_times, 0.5),
    (sort, 2.0),
    (sums, 2.5),
    (extreme, 0.8),
    (words_of, 0.8),
)
