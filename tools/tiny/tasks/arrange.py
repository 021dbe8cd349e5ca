"""Where things stand in a picture."""

from __future__ import annotations

from tools.tiny.scene import COLOUR_NAMES, SHAPES, Scene, Thing, clash
from tools.tiny.words import TRIES, Draw

_PLACES = ("top left", "top", "top right", "left", "center", "right",
           "bottom left", "bottom", "bottom right")  # fmt: skip


def frame(draw: Draw) -> tuple[int, int]:
    for _ in range(TRIES):
        width = draw.between(64, 256)
        height = width if draw.chance(0.6) else draw.between(64, 256)
        if max(width, height) <= 2 * min(width, height) and draw.mine(f"{width}x{height}"):
            break
    return width, height


def background(draw: Draw) -> str:
    dice = draw.rng.random()
    return "white" if dice < 0.4 else "black" if dice < 0.5 else draw.pick(COLOUR_NAMES)


def colour_on(draw: Draw, ground: str, taken: list[str] | tuple[str, ...] = ()) -> str:
    options = [c for c in COLOUR_NAMES if not clash(c, ground) and c not in taken]
    return draw.pick(options or [c for c in COLOUR_NAMES if c != ground])


def alone(draw: Draw, kind: str, name: str, colour: str = "", ground: str = "") -> Scene:
    """One thing, anywhere it fits."""
    width, height = frame(draw)
    ground = ground or background(draw)
    while colour and clash(colour, ground):
        ground = background(draw)
    size = draw.rng.uniform(0.22, 0.85)
    if kind == "digit":
        size = draw.rng.uniform(0.32, 0.85) / (1 + 0.35 * (len(name) - 1))
    if kind == "word":
        size = draw.rng.uniform(0.24, 0.36) if len(name) < 5 else draw.rng.uniform(0.2, 0.28)
    spread = max(0.0, 0.5 - size / 2) * 0.95
    x = 0.5 + draw.rng.uniform(-spread, spread)
    y = 0.5 + draw.rng.uniform(-spread, spread)
    thing = Thing(kind, name, colour or colour_on(draw, ground), x, y, size)
    return Scene([thing], ground, width, height)


def several(draw: Draw, parts: list[tuple[str, str, str]], ground: str) -> Scene:
    """Things (kind, name, colour) apart from each other, as large as their number lets them."""
    width, height = frame(draw)
    short = min(width, height)
    size = {1: 0.5, 2: 0.36, 3: 0.32, 4: 0.29, 5: 0.26}.get(len(parts), 0.24)
    things: list[Thing] = []
    for kind, name, colour in parts:
        for attempt in range(80):
            mine = size * draw.rng.uniform(0.75, 1.0) * (1 if attempt < 40 else 0.8)
            edge_x, edge_y = mine / 2 * short / width, mine / 2 * short / height
            x = draw.rng.uniform(edge_x, 1 - edge_x)
            y = draw.rng.uniform(edge_y, 1 - edge_y)
            apart = all(
                ((x - o.x) * width) ** 2 + ((y - o.y) * height) ** 2
                > (0.56 * (mine + o.size) * short) ** 2
                for o in things
            )
            if apart:
                break
        things.append(Thing(kind, name, colour, x, y, mine))
    return Scene(things, ground, width, height)


def place_of(thing: Thing) -> str | None:
    """Its ninth of the frame, unless it is close to a border between two."""
    for part in (thing.x, thing.y):
        if min(abs(part - 1 / 3), abs(part - 2 / 3)) < 0.05:
            return None
    return _PLACES[int(thing.y * 3) * 3 + int(thing.x * 3)]


def mixed(draw: Draw, count: int) -> tuple[Scene, Thing]:
    """Shapes of different names and colours, and one of them to ask for."""
    ground = background(draw)
    names = draw.some(SHAPES, count)
    taken: list[str] = []
    for _ in names:
        taken.append(colour_on(draw, ground, taken))
    parts = [("shape", name, c) for name, c in zip(names, taken, strict=True)]
    scene = several(draw, parts, ground)
    return scene, draw.pick(scene.things)


SYNONYMS = {
    "circle": "[circle|dot|disc|ball|round shape|round thing]", "square": "[square|box|block]",
    "cross": "[cross|plus|plus sign]", "ring": "[ring|donut]", "crescent": "[crescent|moon]",
    "diamond": "[diamond|rhombus]", "star": "[star|asterisk]", "arrow": "[arrow|pointer]",
}  # fmt: skip


def called(draw: Draw, name: str) -> str:
    """The shape's name, or another word for it."""
    return draw.say(SYNONYMS[name]) if name in SYNONYMS and draw.chance(0.3) else name
