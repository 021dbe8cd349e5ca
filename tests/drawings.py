"""Pictures drawn with plain Pillow calls and named colours, for a model that has to see them."""

from __future__ import annotations

from math import cos, pi, sin

from PIL import Image, ImageDraw, ImageFont


def see(
    what: str,
    colour: str = "black",
    ground: str = "white",
    size: tuple[int, int] = (128, 128),
    box: float = 0.5,
) -> Image.Image:
    """A shape by its name, or any other text as it is, in the middle."""
    image = Image.new("RGB", size, ground)
    pen = ImageDraw.Draw(image)
    side = min(size) * box
    left, top = (size[0] - side) / 2, (size[1] - side) / 2
    right, low = left + side, top + side
    match what:
        case "circle":
            pen.ellipse([left, top, right, low], fill=colour)
        case "square":
            pen.rectangle([left, top, right, low], fill=colour)
        case "triangle":
            pen.polygon([(size[0] / 2, top), (left, low), (right, low)], fill=colour)
        case "rectangle":
            pen.rectangle([left, top + side / 4, right, low - side / 4], fill=colour)
        case "diamond":
            middle = size[1] / 2
            corners = [(size[0] / 2, top), (right - side / 6, middle)]
            corners += [(size[0] / 2, low), (left + side / 6, middle)]
            pen.polygon(corners, fill=colour)
        case "star":
            points = []
            for at in range(10):
                far = side / 2 if at % 2 == 0 else side / 4.8
                points.append(
                    (size[0] / 2 + far * sin(pi * at / 5), size[1] / 2 - far * cos(pi * at / 5))
                )
            pen.polygon(points, fill=colour)
        case _:
            font = ImageFont.load_default(side)
            pen.text((size[0] / 2, size[1] / 2), what, fill=colour, font=font, anchor="mm")
    return image


def row(what: str, colour: str, count: int, size: tuple[int, int] = (220, 120)) -> Image.Image:
    image = Image.new("RGB", size, "white")
    pen = ImageDraw.Draw(image)
    step = size[0] / count
    side = min(step, size[1]) * 0.6
    for at in range(count):
        x, y = step * (at + 0.5), size[1] / 2
        box = [x - side / 2, y - side / 2, x + side / 2, y + side / 2]
        if what == "circle":
            pen.ellipse(box, fill=colour)
        else:
            pen.rectangle(box, fill=colour)
    return image


def pair(colours: tuple[str, str]) -> Image.Image:
    """A square on the left and a circle on the right."""
    image = Image.new("RGB", (200, 120), "white")
    pen = ImageDraw.Draw(image)
    pen.rectangle([20, 30, 80, 90], fill=colours[0])
    pen.ellipse([120, 30, 180, 90], fill=colours[1])
    return image
