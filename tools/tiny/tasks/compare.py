"""Questions about two pictures.

Answers say what each picture shows before they decide: deciding first was learned late or not
at all.
"""

from __future__ import annotations

from tools.tiny.chat import Check
from tools.tiny.scene import COLOUR_NAMES, SHAPES, Scene, paint
from tools.tiny.tasks.arrange import alone, background, colour_on, several
from tools.tiny.tasks.base import Exchange, article, dressed
from tools.tiny.tasks.pictures import COLOUR_WORD, PLURAL
from tools.tiny.words import Draw

_TWO = "[two |both |]"
_PICTURES = "[pictures|images|photos|drawings]"


def _exchange(
    draw: Draw, question: str, answer: str, thought: str, check: Check, scenes: list[Scene]
) -> Exchange:
    pictures = [paint(scene, draw) for scene in scenes]
    return Exchange("compare", dressed(draw, question), answer, thought, check, pictures)


def _shapes(draw: Draw, names: list[str], colours: list[str]) -> list[Scene]:
    return [alone(draw, "shape", n, c) for n, c in zip(names, colours, strict=True)]


def same_colour(draw: Draw) -> Exchange:
    same = draw.chance(0.5)
    names = [draw.pick(SHAPES), draw.pick(SHAPES)]
    first = draw.pick(COLOUR_NAMES)
    second = first if same else draw.pick([c for c in COLOUR_NAMES if c != first])
    question = draw.say(
        draw.pick(
            (
                f"[Do|Does] [the {_TWO}{_PICTURES}|the two shapes|the shapes|both|they] [have|show|"
                f"share] the same {COLOUR_WORD}?",
                f"[Are|Is it so that] the {_TWO}[shapes|objects|figures|things] [have the same|are "
                f"the same|of the same|share a] {COLOUR_WORD}?",
                f"[Is the {COLOUR_WORD} the same|Same {COLOUR_WORD}|Are the {COLOUR_WORD}s "
                f"equal] in "
                f"[both|the two|these] {_PICTURES}?",
                f"Do the {COLOUR_WORD}s [match|agree]?",
                f"Compare the {COLOUR_WORD}s: [are they|same or] [equal|the same]?",
                f"[Has|Does] the second [picture|image|photo|one] [have|show] the {COLOUR_WORD} of "
                "the first[ one|]?",
                f"[One|A single|Just one] {COLOUR_WORD} [in both|for the two|in the two "
                f"{_PICTURES}|both times][, right|, true|]?",
            )
        )
    )
    return _exchange(
        draw, question, _verdict([first, second], same), f"First: {first}. Second: {second}.",
        Check("yes", same), _shapes(draw, names, [first, second]),
    )  # fmt: skip


def same_shape(draw: Draw) -> Exchange:
    same = draw.chance(0.5)
    first = draw.pick(SHAPES)
    second = first if same else draw.pick([s for s in SHAPES if s != first])
    question = draw.say(
        draw.pick(
            (
                f"[Do|Does] [the {_TWO}{_PICTURES}|both|they|these] [show|have|contain] the same "
                "[shape|figure|form]?",
                "[Are|Is it so that] the [two |][shapes|figures|objects] [are |][the same|"
                "identical "
                "in shape|of the same shape|equal in form]?",
                f"Is [it|the shape|the figure] the same in [both|the two|these] {_PICTURES}?",
                "[Same shape|Same figure][ or not|]?",
                "Do the shapes [match|agree]?",
                "[Does|Would] the second [one|picture|image] [have|show|repeat] the [shape|figure|"
                "form] of the first[ one|]?",
                "[One|A single|Just one] [shape|figure|form] [in both|for the two|both times][, "
                "right|, true|]?",
                "[Is|Do I see|Do I get] the same [shape|figure|form] [both times|in each of them|"
                "in either one|again]?",
            )
        )
    )
    seen = [article(first), article(second)]
    colours = [draw.pick(COLOUR_NAMES), draw.pick(COLOUR_NAMES)]
    return _exchange(
        draw, question, _verdict(seen, same), f"First: {first}. Second: {second}.",
        Check("yes", same), _shapes(draw, [first, second], colours),
    )  # fmt: skip


def _verdict(seen: list[str], same: bool) -> str:
    both = " and ".join(seen)
    return f"{both[0].upper()}{both[1:]}, so {'yes' if same else 'no'}."


def _which(seen: list[str], first: bool) -> tuple[str, Check]:
    word, both = "first" if first else "second", " and ".join(seen)
    return f"{both[0].upper()}{both[1:]}, so the {word} one.", Check("which", word)


def has_it(draw: Draw) -> Exchange:
    """Which picture shows the star, or the red thing."""
    first = draw.chance(0.5)
    names, colours = draw.some(SHAPES, 2), draw.some(COLOUR_NAMES, 2)
    at = 0 if first else 1
    what = draw.pick((names[at], f"{colours[at]} {names[at]}", f"{colours[at]} [thing|shape|one]"))
    question = draw.say(
        draw.pick(
            (
                f"[Which|In which] [picture|image|one|photo|of the {_PICTURES}] [shows|has|"
                f"contains|is] [the|a] {what}?",
                f"Where is the {what}, in the first or [in |]the second [picture|image|one]?",
                f"[First or second|The first or the second]: which [shows|has] the {what}?",
                f"Is the {what} in [image|picture] 1 or [image|picture] 2?",
                f"[I want|I need|I am looking for|Where do I find|Where can I see] [the|a] {what}"
                "[: which one|, which picture|, in which of them|. First or second] [is it|do I "
                "take|shows it]?",
                f"[Which of them|Which one of these|Which of both] [shows|has|contains|holds] [the|"
                f"a] {what}?",
                f"[Find|Look for|Point to|Show me] the {what}[.|:] [Which picture is it in|Is it "
                "in the first or the second one|First or second|Picture one or two]?",
            )
        )
    )
    seen = [article(f"{c} {n}") for c, n in zip(colours, names, strict=True)]
    answer, check = _which(seen, first)
    thought = f"First: a {colours[0]} {names[0]}. Second: a {colours[1]} {names[1]}."
    return _exchange(draw, question, answer, thought, check, _shapes(draw, names, colours))


def more(draw: Draw) -> Exchange:
    counts = draw.some(range(1, 6), 2)
    many = draw.chance(0.6)
    names = [draw.pick(SHAPES)] * 2
    scenes = []
    for name, number in zip(names, counts, strict=True):
        ground = background(draw)
        parts = [("shape", name, colour_on(draw, ground)) for _ in range(number)]
        scenes.append(several(draw, parts, ground))
    plural = PLURAL.get(names[0], f"{names[0]}s")
    what = draw.pick((plural, draw.say("[shapes|objects|things|items|figures]")))
    size = "more" if many else "fewer"
    question = draw.say(
        draw.pick(
            (
                f"Which [picture|image|one|of the {_PICTURES}] [has|shows|contains] {size} {what}?",
                f"Are there {size} {what} in the first or [in |]the second [picture|image|one]?",
                f"{size} {what}: [first or second|the first or the second][ one|]?",
            )
        )
    )
    answer, check = _which([str(it) for it in counts], (counts[0] > counts[1]) == many)
    thought = f"First: {counts[0]}. Second: {counts[1]}."
    return _exchange(draw, question, answer, thought, check, scenes)


def digits(draw: Draw) -> Exchange:
    numbers = draw.some("0123456789", 2)
    scenes = [alone(draw, "digit", number) for number in numbers]
    thought = f"First: {numbers[0]}. Second: {numbers[1]}."
    if draw.chance(0.55):
        large = draw.chance(0.6)
        size = draw.say("[larger|bigger|higher|greater]" if large else "[smaller|lower|lesser]")
        question = draw.say(
            draw.pick(
                (
                    f"Which [picture|image|one|of the {_PICTURES}] [shows|has] the {size} "
                    "[digit|number]?",
                    f"Is the [digit|number] {size} in the first or [in |]the second [one|image|"
                    "picture]?",
                    f"Where is the {size} [digit|number], [first or second|in the first or the "
                    "second]?",
                )
            )
        )
        answer, check = _which(numbers, (numbers[0] > numbers[1]) == large)
        return _exchange(draw, question, answer, thought, check, scenes)
    if draw.chance(0.5):
        total = str(int(numbers[0]) + int(numbers[1]))
        question = draw.say(
            "[[What is|Give me|Tell me|Compute] the [sum|total] of [the two|both|these] "
            "[digits|numbers]|What do [the two|both|these] [digits|numbers] add up to]?"
        )
        return _exchange(
            draw, question, f"{numbers[0]} + {numbers[1]} = {total}", thought,
            Check("number", total), scenes,
        )  # fmt: skip
    same = draw.chance(0.5)
    if same:
        numbers[1] = numbers[0]
        scenes[1] = alone(draw, "digit", numbers[0])
    question = draw.say(
        f"[Do [both|the two|these] {_PICTURES} show the same [digit|number]|"
        "Are the [two |][digits|numbers] [the same|equal]|Is it the same [digit|number] twice]?"
    )
    return _exchange(
        draw, question, _verdict(numbers, same),
        f"First: {numbers[0]}. Second: {numbers[1]}.", Check("yes", same), scenes,
    )  # fmt: skip


_NTH = (
    "What [is shown|do you see|is] in the {nth} [picture|image|one]?",
    "[Describe|Name] the [shape|figure] in the {nth} [picture|image|one].",
    "[What|Which] shape is in the {nth} [picture|image|one]?",
)
_NTH_COLOUR = (
    f"[What|Which] {COLOUR_WORD} is the [shape|thing|object|figure] in the {{nth}} [picture|"
    f"image]?",
    f"[What|Which] {COLOUR_WORD} [has|is in|is] the {{nth}} [picture|image|one]?",
)


def nth(draw: Draw) -> Exchange:
    names, colours = draw.some(SHAPES, 2), draw.some(COLOUR_NAMES, 2)
    at = draw.between(0, 1)
    word = draw.pick((("first", "second"), ("left", "right"))[:1])[at]
    thought = f"First: a {colours[0]} {names[0]}. Second: a {colours[1]} {names[1]}."
    scenes = _shapes(draw, names, colours)
    if draw.chance(0.5):
        question = draw.say(draw.pick(_NTH), nth=word)
        answer = f"It is a {colours[at]} {names[at]}."
        return _exchange(draw, question, answer, thought, Check("says", [names[at]]), scenes)
    question = draw.say(draw.pick(_NTH_COLOUR), nth=word)
    check = Check("says", [colours[at]])
    return _exchange(draw, question, f"It is {colours[at]}.", thought, check, scenes)


TWO = ((same_colour, 2.0), (same_shape, 2.0), (has_it, 2.0), (more, 1.2), (digits, 1.5), (nth, 1.2))
