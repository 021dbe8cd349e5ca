"""Questions about one picture: colour, shape, digit, word, count, position, presence."""

from __future__ import annotations

from tools.tiny.chat import Check
from tools.tiny.scene import COLOUR_NAMES, SHAPES, Picture, paint
from tools.tiny.tasks.arrange import (
    SYNONYMS,
    alone,
    background,
    called,
    colour_on,
    mixed,
    place_of,
    several,
)
from tools.tiny.tasks.base import PICTURE, SHOWN, Exchange, article, brief, dressed, listed
from tools.tiny.tasks.choices import either, presence
from tools.tiny.words import Draw

PLURAL = {"cross": "crosses"}


def _asked(
    draw: Draw, kind: str, pattern: str, value: str, sentence: str, thought: str,
    picture: Picture, **values: object,
) -> Exchange:  # fmt: skip
    question = dressed(draw, draw.say(pattern, **values))
    answer = sentence
    if draw.chance(0.18):
        question, answer = brief(draw, question), value
    return Exchange(kind, question, answer, thought, Check("says", [value]), [picture])


COLOUR_WORD = "[color|colour|hue|shade|tint]"
_COLOUR = (
    f"[What|Which] {COLOUR_WORD} [is|has|does] [it|this|that][ have|]?",
    f"[What|Which] {COLOUR_WORD} is [the|this|that] {{what}}[ {SHOWN}|]?",
    f"[What|Which] {COLOUR_WORD} [do you see|can you see|is shown|is used|appears|is it][ here|]?",
    f"[Tell me|Say|Name|Give me|Identify|State|Write] the {COLOUR_WORD} [of the {{what}}|{SHOWN}|"
    "you see|of this thing|of it].",
    f"The {{what}} [here|{SHOWN}] [is|has] [what|which] {COLOUR_WORD}?",
    f"[How|In which {COLOUR_WORD}|In what {COLOUR_WORD}] is the {{what}} [colored|coloured|painted|"
    "drawn|filled]?",
    f"Can you [tell|see|name|say|recognise|recognize] [the|what|which] {COLOUR_WORD} "
    "[of the {what}|the {what} is|the {what} has|this is]?",
    f"[Look at|Check|Examine] [the|this] {PICTURE}. [What|Which] {COLOUR_WORD} is the {{what}}?",
    f"[And its|Its|The] {COLOUR_WORD}[, please| is|, what is it|, if you can see it]?",
)


def colour(draw: Draw) -> Exchange:
    if draw.chance(0.6):
        kind = draw.pick(("shape", "shape", "shape", "digit", "word"))
        name = {
            "shape": draw.pick(SHAPES),
            "digit": draw.number(1, 1),
            "word": draw.word()[: draw.between(3, 6)],
        }[kind]
        scene = alone(draw, kind, name)
        thing = scene.things[0]
        general = "[shape|object|thing|figure|form|item]"
        if kind != "shape":
            general = {"digit": "[digit|number|numeral|figure]", "word": "[word|text]"}[kind]
        what = thing.name if kind == "shape" and draw.chance(0.5) else draw.say(general)
        return _asked(
            draw, "colour", draw.pick(_COLOUR), thing.colour, f"It is {thing.colour}.",
            f"The picture shows a {thing.colour} {what}.", paint(scene, draw), what=what,
        )  # fmt: skip
    scene, target = mixed(draw, draw.between(2, 4))
    scene.things.sort(key=lambda thing: thing.x)
    # What is seen comes first: the colour alone of one among several is learned late or not at all.
    seen = listed([f"the {it.name} is {it.colour}" for it in scene.things])
    pattern, what = draw.pick(_COLOUR[1:2] + _COLOUR[4:-1]), called(draw, target.name)
    return Exchange(
        "colour", dressed(draw, draw.say(pattern, what=what)),
        f"{seen[0].upper()}{seen[1:]}, so the {target.name} is {target.colour}.",
        f"From left to right: {seen}.",
        Check("last", [target.colour, *COLOUR_NAMES]), [paint(scene, draw)],
    )  # fmt: skip


_SHAPE = (
    "[What|Which] [kind of |type of |sort of |geometric |]shape [is|do you see|can you see|"
    f"appears|is shown|is visible|is drawn][ here| {SHOWN}|]?",
    "[What|Which] [shape|figure|form] is [this|that|it|the object|the thing]?",
    "[Name|Tell me|Identify|Say|Give me|Recognise|State|Write] the "
    f"[shape|geometric shape|geometric figure|form][ {SHOWN}|].",
    "[What|Which] shape does [this|it|the object|the figure] have?",
    "[Is it|Is this] a circle, a square, [or|a triangle or] [something else|another shape]?",
    "[Can|Could] you [tell|name|recognise|recognize|identify] [the|this|which|what] shape[ this is"
    "| it is|]?",
    f"[Look at|Check|Examine] [the|this] {PICTURE}: [what|which] shape is it?",
    "[And its|Its|And the|The] [shape|form][, please| is|, what is it|, if you can see it]?",
)
_SHAPE_BY_COLOUR = (
    "[What|Which] [shape|figure|object] is {colour}?",
    "[What|Which] shape [is|has] the {colour} [one|object|thing|figure|colour|color]?",
    f"[What|Which] is the {{colour}} [shape|figure|form|object] {SHOWN}?",
    "[Name|Identify|Tell me] the [shape of the {colour} one|{colour} shape|{colour} figure].",
    "What [is|do you see that is] {colour} [here|in it]?",
)


def shape(draw: Draw) -> Exchange:
    if draw.chance(0.75):
        scene = alone(draw, "shape", draw.pick(SHAPES))
        thing, pattern = scene.things[0], draw.pick(_SHAPE)
    else:
        scene, thing = mixed(draw, draw.between(2, 4))
        pattern = draw.pick(_SHAPE_BY_COLOUR)
    return _asked(
        draw, "shape", pattern, thing.name, f"It is {article(thing.name)}.",
        f"I see a {thing.colour} {thing.name}.", paint(scene, draw), colour=thing.colour,
    )  # fmt: skip


_DIGIT = (
    "[What|Which] [digit|number|numeral|figure] [is|do you see|can you see|is shown|is written|"
    f"is visible|appears][ here| {SHOWN}|]?",
    "[What|Which] [digit|number|numeral] is [this|that|it]?",
    f"[Read|Name|Tell me|Say|Identify|Write|Give me] the [digit|number|numeral][ {SHOWN}|].",
    "What does [it|this|the picture|the image|the sign] [say|read]?",
    f"[Can|Could] you read the [digit|number|numeral][ {SHOWN}|]?",
    f"[Look at|Check] [the|this] {PICTURE}. [What|Which] [digit|number] is it?",
    "[And its|And the|The] [digit|number|numeral][, please| is|, what is it|, if you can see it]?",
    f"There is a [digit|number] {SHOWN}. [Which|What] [one|is it|one is it]?",
)


def digit(draw: Draw) -> Exchange:
    name = draw.number(1, 1) if draw.chance(0.75) else draw.number(2, 3)
    if draw.chance(0.85):
        scene = alone(draw, "digit", name)
    else:
        ground = background(draw)
        other = draw.pick(SHAPES)
        first = colour_on(draw, ground)
        pair = [("digit", name, first), ("shape", other, colour_on(draw, ground, [first]))]
        scene = several(draw, pair, ground)
    noun = "digit" if len(name) == 1 else "number"
    exchange = _asked(
        draw, "digit" if len(name) == 1 else "number", draw.pick(_DIGIT), name,
        f"The {noun} is {name}.", f"The picture shows a {noun}: {name}.",
        paint(scene, draw),
    )  # fmt: skip
    exchange.check = Check("number", name)
    return exchange


_WORD = (
    f"[What|Which] word [is|do you see|can you see|is written|is shown][ here| {SHOWN}|]?",
    "What does [it|this|the picture|the image|the text|the sign] say?",
    f"[Read|Write down|Tell me|Give me|Copy|Transcribe] the [word|text][ {SHOWN}|].",
    f"What is written [here|{SHOWN}]?",
    f"[Can|Could] you read the [word|text|writing][ {SHOWN}|]?",
)


def word(draw: Draw) -> Exchange:
    name = draw.word()[: draw.between(2, 6)]
    name = name.upper() if draw.chance(0.55) else name
    scene = alone(draw, "word", name)
    return _asked(
        draw, "word", draw.pick(_WORD), name, f'It says "{name}".', f'The text is "{name}".',
        paint(scene, draw),
    )  # fmt: skip


_COUNT = (
    f"How many {{what}} [are there|do you see|can you see|are|are shown|are visible][ {SHOWN}|]?",
    "[Count|Please count] the {what}[ for me|].",
    f"[What is the number of|Tell me the number of|Give me the count of] {{what}}[ {SHOWN}|]?",
    "{what}: how many[ are there|]?",
)
_EXTRA = ("[objects|things|shapes|figures|items|forms]",)


def count(draw: Draw) -> Exchange:
    ground, name, number = background(draw), draw.pick(SHAPES), draw.between(1, 6)
    same = colour_on(draw, ground)
    varied = draw.chance(0.4)
    parts = [("shape", name, colour_on(draw, ground) if varied else same) for _ in range(number)]
    others = draw.between(1, 2) if draw.chance(0.35) and number < 5 else 0
    other = draw.pick([s for s in SHAPES if s != name])
    parts += [("shape", other, colour_on(draw, ground)) for _ in range(others)]
    draw.rng.shuffle(parts)
    many = PLURAL.get(name, f"{name}s")
    if name in SYNONYMS and draw.chance(0.25):
        word = draw.say(SYNONYMS[name])
        many = f"{word}es" if word.endswith(("x", "s")) else f"{word}s"
    what, total = (many, number)
    if draw.chance(0.35):
        what, total = draw.say(draw.pick(_EXTRA)), number + others
    verb = "are" if total != 1 else "is"
    exchange = _asked(
        draw, "count", draw.pick(_COUNT), str(total), f"There {verb} {total}.",
        f"Counting the {what}: {', '.join(str(n + 1) for n in range(total))}.",
        paint(several(draw, parts, ground), draw), what=what,
    )  # fmt: skip
    exchange.check = Check("number", str(total))
    return exchange


_WHERE = (
    f"Where [is|do you see|can I find] the {{what}}[ {SHOWN}|]?",
    "[What|Which] [position|place|part of the picture|corner or side] is the {what} in?",
    f"In [which|what] [part|area|corner or side|region] of the {PICTURE} is the {{what}}?",
    "[Tell me|Describe|Give] the [position|location] of the {what}.",
)


def position(draw: Draw) -> Exchange:
    while True:
        if draw.chance(0.5):
            scene, thing = mixed(draw, draw.between(2, 3))
        else:
            kind = draw.pick(("shape", "shape", "digit"))
            scene = alone(draw, kind, draw.pick(SHAPES) if kind == "shape" else draw.number(1, 1))
            thing = scene.things[0]
            thing.size = min(thing.size, 0.34)
            thing.x, thing.y = (
                draw.pick((0.18, 0.5, 0.82)) + draw.rng.uniform(-0.06, 0.06) for _ in "xy"
            )
        place = place_of(thing)
        if place:
            break
    what = thing.name if thing.kind == "shape" else "digit"
    where = f"in the {place}" if place == "center" else f"at the {place}"
    side = place in ("left", "right")
    return _asked(
        draw, "position", draw.pick(_WHERE), place, f"It is {'on the' if side else where}"
        f"{' ' + place if side else ''}.", f"The {what} is near the {place} of the picture.",
        paint(scene, draw), what=what,
    )  # fmt: skip


_DESCRIBE = (
    f"[Describe|Please describe|Caption] [this|the] {PICTURE}[ briefly| for me|].",
    f"What [is|do you see|can you see] {SHOWN}?",
    f"What does [this|the] {PICTURE} show?",
    f"[Tell me|Say] what [you see|is in this {PICTURE}|this {PICTURE} shows].",
    "What is this?",
)


def describe(draw: Draw) -> Exchange:
    dice = draw.rng.random()
    if dice < 0.4:
        scene = alone(draw, "shape", draw.pick(SHAPES))
    elif dice < 0.6:
        scene = alone(draw, "digit", draw.number(1, 1))
    else:
        scene, _ = mixed(draw, draw.between(2, 3))
        scene.things.sort(key=lambda thing: thing.x)
    seen = [
        article(f"{t.colour} {t.name}")
        if t.kind == "shape"
        else f"the digit {t.name} in {t.colour}"
        for t in scene.things
    ]
    answer = f"It shows {listed(seen)} on a {scene.background} background."
    words = [word for t in scene.things for word in (t.colour, t.name)]
    question = dressed(draw, draw.say(draw.pick(_DESCRIBE)))
    return Exchange("describe", question, answer, f"I look at the picture from left to right: "
                    f"{listed(seen)}.", Check("says", words), [paint(scene, draw)])  # fmt: skip


def ground(draw: Draw) -> Exchange:
    scene = alone(draw, "shape", draw.pick(SHAPES))
    pattern = (
        f"[What|Which] {COLOUR_WORD} is the background[ of [this|the] {PICTURE}|]?",
        f"[Tell me|Name] the {COLOUR_WORD} [behind the {{what}}|of the background].",
    )
    return _asked(
        draw, "background", draw.pick(pattern), scene.background,
        f"The background is {scene.background}.",
        f"Behind the {scene.things[0].name} everything is {scene.background}.",
        paint(scene, draw), what=scene.things[0].name,
    )  # fmt: skip


# For talks that are about something else.
EASY = ((colour, 2.0), (shape, 2.0), (digit, 2.0), (describe, 1.0), (either, 1.0))
ONE = (
    (colour, 4.0),
    (shape, 3.0),
    (digit, 4.0),
    (word, 3.0),
    (count, 2.5),
    (position, 1.5),
    (presence, 4.0),
    (describe, 2.0),
    (ground, 0.7),
    (either, 1.8),
)
