"""Questions about one picture that name the answers: yes or no, this or that."""

from __future__ import annotations

from tools.tiny.chat import Check
from tools.tiny.scene import COLOUR_NAMES, SHAPES, Scene, paint
from tools.tiny.tasks.arrange import alone, mixed
from tools.tiny.tasks.base import PICTURE, SHOWN, Exchange, article, dressed, listed
from tools.tiny.words import Draw

_OR = (
    "Is [it|this|that|the thing|the object] {a} or {b}?",
    "[{a} or {b}|{a} or rather {b}|Would you say {a} or {b}|Do you see {a} or {b}]?",
    f"[Is|Do you think|Would you say] [this|it|that|the {PICTURE}] [is |shows |]{{a}} or {{b}}?",
)


def either(draw: Draw) -> Exchange:
    """This or that."""
    kind = draw.pick(("colour", "shape", "digit"))
    if kind == "digit":
        values = draw.some("0123456789", 2)
        scene = alone(draw, "digit", values[0])
        said, answer = list(values), f"The digit is {values[0]}."
        said = [f"a {value}" for value in said] if draw.chance(0.5) else said
    elif kind == "shape":
        values = draw.some(SHAPES, 2)
        scene = alone(draw, "shape", values[0])
        said, answer = [article(value) for value in values], f"It is {article(values[0])}."
    else:
        scene = alone(draw, "shape", draw.pick(SHAPES))
        mine = scene.things[0].colour
        values = [mine, draw.pick([c for c in COLOUR_NAMES if c != mine])]
        said, answer = list(values), f"It is {mine}."
    draw.rng.shuffle(said)
    question = dressed(draw, draw.say(draw.pick(_OR), a=said[0], b=said[1]))
    check = Check("number", values[0]) if kind == "digit" else Check("says", [values[0]])
    return Exchange(kind, question, answer, f"I see {values[0]}.", check, [paint(scene, draw)])


_THERE = (
    f"[Is there|Do you see|Can you see|Can you find] {{what}}[ {SHOWN}| here|]?",
    f"[Does|Would] [the|this] {PICTURE} [show|contain|have|include] {{what}}?",
    "[I think|Someone said] there is {what}[ here|]. [Is that right|True|Correct|Is that so]?",
    f"[Can|Could] {{what}} be [seen|found] [{SHOWN}|here|anywhere]?",
    "[Look for|Search for] {what}. [Is it there|Do you find it|Is there one|Yes or no]?",
    f"[Has [the|this] {PICTURE} got|Does [the|this] {PICTURE} really show] {{what}}[ somewhere|]?",
    "[Is|Would you call] [any|one|at least one] of [the things|these|the shapes|them] {what}?",
    "[Would|Could|Might] [this|that|it] be {what}[ that I see| here|]?",
    f"[Am I right that|Is it true that] there is {{what}}[ {SHOWN}| here|]?",
)
_RELATION = ("Is the {a} [to the |]{side} of the {b}?", "Is the {a} {side} of the {b}[ or not|]?")


def presence(draw: Draw) -> Exchange:
    scene, thing = mixed(draw, draw.pick((1, 1, 2, 3)))
    scene.things.sort(key=lambda it: it.x)
    there = draw.chance(0.5)
    if len(scene.things) > 1 and draw.chance(0.3):
        first, second = draw.some(scene.things, 2)
        if abs(first.x - second.x) > 0.15:
            right = first.x > second.x
            side = "right" if right == there else "left"
            pattern, values = draw.pick(_RELATION), {"a": first.name, "b": second.name}
            where = f"on the {'right' if right else 'left'}"
            return _yes(draw, pattern, there, f"The {first.name} is {where}", scene,
                        f"The {first.name} is {where}.", side=side, **values)  # fmt: skip
    names = [it.name for it in scene.things]
    if there:
        name, colour_name = thing.name, thing.colour
    elif draw.chance(0.5) or len(names) < 2:
        name = draw.pick([s for s in SHAPES if s not in names])
        colour_name = draw.pick((thing.colour, draw.pick(COLOUR_NAMES)))
    else:
        name = thing.name
        colour_name = draw.pick([c for c in COLOUR_NAMES if c != thing.colour])
    plain = draw.chance(0.4) and (there or name not in names)
    what = article(name if plain else f"{colour_name} {name}")
    seen = listed([article(f"{it.colour} {it.name}") for it in scene.things])
    return _yes(draw, draw.pick(_THERE), there, f"I see {seen}", scene, f"I see {seen}.", what=what)


def _yes(
    draw: Draw, pattern: str, yes: bool, said: str, scene: Scene, thought: str, **values: object
) -> Exchange:
    # The reason comes first: deciding before it was not learned.
    question = dressed(draw, draw.say(pattern, **values))
    answer = f"{said}, so {'yes' if yes else 'no'}."
    return Exchange("presence", question, answer, thought, Check("yes", yes), [paint(scene, draw)])
