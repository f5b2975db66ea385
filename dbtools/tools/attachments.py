"""Which bytes go along with a row: cells and their addresses in, what fits into the limits of a role out."""

from collections.abc import Mapping

from dbtools.results import Media, is_media, media_type

LARGEST_MEDIA = 1_000_000  #: bytes of the pictures and sounds that go along with a row
LARGEST_OTHER = 100_000  #: bytes of the other blobs that do
DEAREST = 6_000  #: bytes that a picture or a sound counts as at most: a model takes some 2,000 tokens for it


def attached(
    cells: Mapping[str, object], uris: Mapping[str, str | None], room: int
) -> tuple[tuple[Media, ...], list[str]]:
    """Return the bytes among *cells* that fit into *room* bytes, and the names of the pictures that do not.

    Bytes without one of the addresses *uris* stand in the row itself.
    """
    fitting: list[Media] = []
    left: list[str] = []
    free = LARGEST_MEDIA
    for name, uri in uris.items():
        cell = cells[name]
        if not isinstance(cell, bytes) or not cell or uri is None:
            continue
        media = Media(uri=uri, type=media_type(cell), content=cell)
        if len(cell) <= _most(media, free) and _cost(media) <= room:
            fitting.append(media)
            free -= len(cell)
            room -= _cost(media)
        elif is_media(media.type):
            left.append(name)
    return tuple(fitting), left


def _most(media: Media, free: int) -> int:
    return free if is_media(media.type) else min(free, LARGEST_OTHER)


def _cost(media: Media) -> int:
    """Return as how many bytes of an answer *media* counts."""
    return min(media.size, DEAREST) if is_media(media.type) else media.size
