"""Product pictures: an icon and two colours in, the bytes of a small PNG out."""

from struct import pack
from zlib import adler32, crc32

Colour = tuple[int, int, int]

SIZE = 16

# The left half of each icon: space is background, # the product's colour, + light, . dark.
ICONS = {
    "tent": (
        "        |       +|      +#|      ##|     +##|     ###|    +##.|    ###.|"
        "   +##..|   ###..|  +##...|  ###...| +##....| ###....|++++++++|        "
    ),
    "mountain": (
        "        |        |       +|      ++|      +#|     +##|     ###|    ####|"
        "   +####|   ###.#|  ###..#| +##..##| ###.###|###.####|########|        "
    ),
    "carabiner": (
        "        |     +++|    +###|   +##  |   ##   |   ##   |   ##   |   ##   |"
        "   ##   |   ..   |   ..   |   ##   |   +##  |    +###|     +++|        "
    ),
    "jacket": (
        "        |     ...|    +...|   +##..| +####.#|+#####.#|##.###.#|##.###.#|"
        "##.###.#|##.###.#|##.#.#.#|++.#.#.#|   #.#.#|   ####.|   +++++|        "
    ),
    "drop": (
        "        |       #|       #|      ##|      ##|     ###|    +###|    +###|"
        "   +####|   +####|   +####|   +####|    +###|    ++##|      ..|        "
    ),
    "snowflake": (
        "       +|     + +|      ++|   #   #|  +##  #|   ### #|    ####|+ +  ###|"
        " + +####|    ####|   ### #|  +##  #|   #   #|      ++|     + +|       +"
    ),
    "lamp": (
        "        |    ++++|   +++++|  +++###|  ++####|  ++####|  ++####|  +++###|"
        "   +++##|    ++++|     +++|     ...|     ...|     ...|      ..|        "
    ),
}


def picture(icon: str, background: Colour, colour: Colour) -> bytes:
    """Return *icon* in *colour* on *background* as a PNG of 16 by 16 pixels and four colours."""
    light, dark = _mixed(colour, (255, 255, 255)), _mixed(colour, (0, 0, 0))
    palette = bytes(channel for entry in (background, colour, light, dark) for channel in entry)
    header = pack(">IIBBBBB", SIZE, SIZE, 2, 3, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        (
            _chunk(b"IHDR", header),
            _chunk(b"PLTE", palette),
            _chunk(b"IDAT", _stored(_pixels(ICONS[icon]))),
            _chunk(b"IEND", b""),
        )
    )


def _pixels(icon: str) -> bytes:
    halves = icon.split("|")
    return b"".join(b"\x00" + _row(half + half[::-1]) for half in halves)


def _row(marks: str) -> bytes:
    value = 0
    for mark in marks:
        value = value << 2 | " #+.".index(mark)
    return value.to_bytes(SIZE // 4, "big")


def _stored(content: bytes) -> bytes:
    # zlib compresses differently from release to release; a stored block is the same everywhere.
    length = len(content)
    block = b"\x01" + pack("<HH", length, length ^ 0xFFFF) + content
    return b"\x78\x01" + block + pack(">I", adler32(content))


def _chunk(name: bytes, content: bytes) -> bytes:
    return pack(">I", len(content)) + name + content + pack(">I", crc32(name + content))


def _mixed(one: Colour, other: Colour) -> Colour:
    red, green, blue = ((2 * a + b) // 3 for a, b in zip(one, other, strict=True))
    return red, green, blue
