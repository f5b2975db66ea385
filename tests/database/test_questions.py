"""Business questions take at most three calls, and get the answers of plain SQL."""

import random
import shutil
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.config import Config
from anyio.from_thread import BlockingPortal

from tests.database.shop import Serve, Shop, Shops, literal, open_shop, open_shops, quote, rows_of

REPOSITORY = Path(__file__).parents[2]
QUESTIONS: Mapping[str, list[dict[str, Any]]] = tomllib.loads(
    Path(__file__).with_name("questions.toml").read_text("utf-8")
)
MOST_CALLS = 3
DEFAULT_LIMIT = 50

#: The tables of Chinook (github.com/lerocha/chinook-database), in the order in which they refer to others.
CHINOOK = {
    "Artist": '"ArtistId" int primary key, "Name" varchar(120)',
    "Genre": '"GenreId" int primary key, "Name" varchar(120)',
    "MediaType": '"MediaTypeId" int primary key, "Name" varchar(120)',
    "Playlist": '"PlaylistId" int primary key, "Name" varchar(120)',
    "Employee": """
        "EmployeeId" int primary key, "LastName" varchar(20) not null, "FirstName" varchar(20) not null,
        "Title" varchar(30), "ReportsTo" int references "Employee" ("EmployeeId"), "HireDate" timestamp
    """,
    "Customer": """
        "CustomerId" int primary key, "FirstName" varchar(40) not null, "LastName" varchar(20) not null,
        "Company" varchar(80), "City" varchar(40), "State" varchar(40), "Country" varchar(40),
        "SupportRepId" int references "Employee" ("EmployeeId")
    """,
    "Album": """
        "AlbumId" int primary key, "Title" varchar(160) not null,
        "ArtistId" int not null references "Artist" ("ArtistId")
    """,
    "Track": """
        "TrackId" int primary key, "Name" varchar(200) not null,
        "AlbumId" int references "Album" ("AlbumId"),
        "MediaTypeId" int not null references "MediaType" ("MediaTypeId"),
        "GenreId" int references "Genre" ("GenreId"),
        "Composer" varchar(220), "Milliseconds" int not null, "Bytes" int, "UnitPrice" numeric(10,2) not null
    """,
    "Invoice": """
        "InvoiceId" int primary key, "CustomerId" int not null references "Customer" ("CustomerId"),
        "InvoiceDate" timestamp not null, "BillingCity" varchar(40), "BillingState" varchar(40),
        "BillingCountry" varchar(40), "Total" numeric(10,2) not null
    """,
    "InvoiceLine": """
        "InvoiceLineId" int primary key, "InvoiceId" int not null references "Invoice" ("InvoiceId"),
        "TrackId" int not null references "Track" ("TrackId"), "UnitPrice" numeric(10,2) not null,
        "Quantity" int not null
    """,
    "PlaylistTrack": """
        "PlaylistId" int not null references "Playlist" ("PlaylistId"),
        "TrackId" int not null references "Track" ("TrackId"),
        primary key ("PlaylistId", "TrackId")
    """,
}
ARTISTS = ("Gull & the Lanterns", "Æther", "The Nine O'Clocks", "Marisol Vega", "Quartetto Brina", "Óðinn")
ALBUMS = ("First Light", "Harbour", "Nocturnes", "Live in Oslo", "Paper Boats", "B-Sides")
GENRES = ("Rock", "Jazz", "Classical", "Folk", "Electronica", "Blues")
MEDIA = ("MPEG audio file", "AAC audio file", "Protected AAC audio file")
PLAYLISTS = ("Music", "90’s Music", "Heavy Rotation", "On-The-Go 1")
EMPLOYEES = (
    (1, "Adams", "Andrew", "General Manager", None, "2002-08-14 00:00:00"),
    (2, "Edwards", "Nancy", "Sales Manager", 1, "2002-05-01 00:00:00"),
    (3, "Peacock", "Jane", "Sales Support Agent", 2, "2002-04-01 00:00:00"),
    (4, "Park", "Margaret", "Sales Support Agent", 2, "2003-05-03 00:00:00"),
    (5, "Johnson", "Steve", "Sales Support Agent", 2, "2003-10-17 00:00:00"),
    (6, "Mitchell", "Michael", "IT Manager", 1, None),
    (7, "King", "Robert", "IT Staff", 6, "2004-01-02 00:00:00"),
)
LAST_NAMES = ("Okafor", "Lindqvist", "Müller", "Tremblay", "Rossi", "Silva", "Novák", "O'Neill")
PLACES = (
    ("Montréal", "QC", "Canada"),
    ("Toronto", "ON", "Canada"),
    ("Berlin", None, "Germany"),
    ("São Paulo", "SP", "Brazil"),
    ("Roma", "RM", "Italy"),
    ("Dublin", None, "Ireland"),
)
BEGINNING = datetime(2021, 1, 1)
DAYS = 5 * 365

Cells = tuple[object, ...]


@cache
def music() -> Mapping[str, Sequence[Cells]]:
    """Return the rows of every table of Chinook, some hundred in all and always the same."""
    draw = random.Random(2009)
    prices = (Decimal("0.99"), Decimal("0.99"), Decimal("1.99"))
    albums = [(at + 1, f"{draw.choice(ALBUMS)} {at}", at % len(ARTISTS) + 1) for at in range(24)]
    tracks: list[tuple[Any, ...]] = [
        (
            number,
            f"Track {number:03}",
            draw.choice([None, *range(1, 25), *range(1, 25)]),
            draw.randint(1, len(MEDIA)),
            draw.choice([None, *range(1, len(GENRES) + 1)]),
            draw.choice([None, "Trad.", "M. Vega"]),
            draw.randint(90, 900) * 500,
            draw.choice([None, 5_000_000, 9_876_543]),
            draw.choice(prices),
        )
        for number in range(1, 161)
    ]
    places = [draw.choice(PLACES) for _ in range(30)]
    customers = [
        (
            number,
            draw.choice(["Ada", "Ben", "Chi", "Dee"]),
            LAST_NAMES[number % 8] if number > 1 else "Okafor",
            draw.choice([None, None, None, "Google Inc.", "Riotur"]),
            *place,
            draw.choice([None, 3, 4, 5]),
        )
        for number, place in enumerate(places, 1)
    ]
    lines: list[tuple[Any, ...]] = []
    invoices = [_invoice(draw, number, places, tracks, lines) for number in range(1, 141)]
    pairs = {(draw.randint(1, len(PLAYLISTS)), draw.randint(1, 160)) for _ in range(200)}
    return {
        "Artist": list(enumerate(ARTISTS, 1)),
        "Genre": list(enumerate(GENRES, 1)),
        "MediaType": list(enumerate(MEDIA, 1)),
        "Playlist": list(enumerate(PLAYLISTS, 1)),
        "Employee": EMPLOYEES,
        "Customer": customers,
        "Album": albums,
        "Track": tracks,
        "Invoice": invoices,
        "InvoiceLine": lines,
        "PlaylistTrack": sorted(pairs),
    }


def _invoice(
    draw: random.Random,
    number: int,
    places: Sequence[Cells],
    tracks: Sequence[tuple[Any, ...]],
    lines: list[tuple[Any, ...]],
) -> Cells:
    """Return one invoice, and put what it is for at the end of *lines*."""
    customer = draw.randint(1, len(places))
    bought = draw.sample(tracks[:130], draw.randint(1, 4))
    for track in bought:
        lines.append((len(lines) + 1, number, track[0], track[-1], 1))
    at = BEGINNING + timedelta(days=draw.randrange(DAYS), hours=draw.choice([0, 9, 12, 13, 20, 23]))
    total = sum(track[-1] for track in bought)
    return (number, customer, str(at), *places[customer - 1], total)


def _ddl() -> str:
    statements = [f"create table {quote(table)} ({columns});" for table, columns in CHINOOK.items()]
    for table, rows in music().items():
        values = ",\n".join(f"({', '.join(map(_written, row))})" for row in rows)
        statements.append(f"insert into {quote(table)} values {values};")
    return "\n".join(statements)


def _written(cell: object) -> str:
    match cell:
        case None:
            return "null"
        case str():
            return literal(cell)
        case _:
            return str(cell)


@pytest.fixture(scope="module")
def chinook(serve: Serve) -> Iterator[Shops]:
    ddl = _ddl()
    with open_shops(serve, {"sqlite": ddl, "postgresql": ddl}) as shops:
        yield shops


@pytest.fixture(scope="module")
def sample(
    portal: BlockingPortal, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Shops]:
    """Yield the sample: the committed one, and what the migrations build."""

    def url(dialect: str) -> str:
        if dialect == "sqlite":
            path = tmp_path_factory.mktemp("questions") / "sample.db"
            return f"sqlite:///{shutil.copy(REPOSITORY / 'sample.db', path)}"
        server = request.getfixturevalue("postgresql_server")
        url = str(server.url_of(stack.enter_context(server.database())))
        config = Config(REPOSITORY / "alembic.ini")
        config.set_main_option("sqlalchemy.url", url.replace("%", "%%"))
        command.upgrade(config, "heads")
        return url

    with ExitStack() as stack:
        yield cache(lambda dialect: stack.enter_context(open_shop(dialect, url(dialect), portal)))


@pytest.mark.parametrize(
    ("about", "question"),
    [
        pytest.param(about, each, id=f"{about}: {each['asks']}")
        for about, questions in QUESTIONS.items()
        for each in questions
    ],
)
def test_question_is_answered(
    about: str, question: Mapping[str, Any], dialect: str, request: pytest.FixtureRequest
) -> None:
    shop = request.getfixturevalue(about)(dialect)
    expected, truncated = _expected(shop, question)

    page = _answer(shop, question["calls"])

    assert len(question["calls"]) <= MOST_CALLS
    assert expected
    assert _alike(rows_of(page), expected) == expected
    assert page["truncated"] is truncated


def _answer(shop: Shop, calls: Sequence[Mapping[str, Any]]) -> Mapping[str, object]:
    """Return the answer to the last of *calls*, each of which may quote the answers before it."""
    pages: list[Mapping[str, Any]] = []
    for call in calls:
        arguments = {name: value for name, value in call.items() if name != "tool"}
        if "where" in arguments:
            arguments["where"] = [_filled(each, pages) for each in arguments["where"]]
        pages.append(shop.call(call["tool"], arguments).structured)
    assert not any(page["truncated"] for page in pages[:-1] if len(page["rows"]) > 1)
    return pages[-1]


def _filled(condition: Mapping[str, Any], pages: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return *condition* with what it quotes of *pages*: {1.id} is the column `id` of the first."""
    for argument in ("value", "values"):
        quoted = str(condition.get(argument, ""))
        if quoted.startswith("{"):
            number, _, column = quoted.strip("{}").partition(".")
            page = pages[int(number) - 1]
            cells = [row[page["columns"].index(column)] for row in page["rows"]]
            return {**condition, argument: cells if argument == "values" else cells[0]}
    return condition


def _expected(shop: Shop, question: Mapping[str, Any]) -> tuple[list[list[object]], bool]:
    """Return the rows that SQL finds, as many as are wanted, and whether there are more."""
    sql = question["sql"]
    rows = shop.bare.rows(sql if isinstance(sql, str) else sql[shop.dialect])
    limit = question["calls"][-1].get("limit", DEFAULT_LIMIT)
    return [[_shown(cell) for cell in row] for row in rows[:limit]], len(rows) > limit


def _shown(cell: object) -> object:
    """Return *cell* as answers show it: numbers that were computed have 15 digits."""
    if isinstance(cell, float):
        return float(f"{cell:.15g}")
    return cell.isoformat() if isinstance(cell, date) else cell


def _alike(rows: list[list[object]], expected: list[list[object]]) -> list[list[object]]:
    """Return *rows* with decimals where *expected* has them: JSON has none."""
    kinds = [{type(cell) for cell in column} for column in zip(*expected, strict=True)]
    return [
        [
            Decimal(str(cell)) if Decimal in kind and cell is not None else cell
            for cell, kind in zip(row, kinds, strict=True)
        ]
        for row in rows
    ]
