"""The databases that are measured, as SQL: a shop of 200,000 orders, and 1,000 tables of 20 columns."""

CUSTOMERS, ORDERS = 10_000, 200_000
TABLES, COLUMNS = 1_000, 20

CUSTOMER_TABLE = """
create table customers (
  id integer primary key,
  name text not null,
  email text not null unique,
  country varchar(2) not null,
  city text,
  created_at {timestamp} not null,
  credit_limit numeric(12, 2) not null,
  active boolean not null
);
"""
ORDER_TABLE = """
create table orders (
  id integer primary key,
  customer_id integer not null references customers (id),
  product_id integer not null,
  quantity integer not null,
  unit_price numeric(10, 2) not null,
  status text not null,
  ordered_at {timestamp} not null,
  note text
);
"""
CUSTOMER_ROWS = """
insert into customers
select n, 'Customer ' || n, 'customer' || n || '@example.com',
  case n % 4 when 0 then 'PT' when 1 then 'JP' when 2 then 'EC' else 'IT' end,
  case n % 3 when 0 then null else 'City ' || n % 90 end,
  {moment}, (n * 37 % 900000) / 100.0, n % 7 <> 0
from {numbers};
"""
ORDER_ROWS = """
insert into orders
select n, (n - 1) / 20 + 1, n % 2000 + 1, n % 9 + 1, (n * 11 % 50000) / 100.0,
  case n % 4 when 0 then 'new' when 1 then 'paid' when 2 then 'shipped' else 'returned' end,
  {moment}, case n % 3 when 0 then 'note for order ' || n end
from {numbers};
"""
SQLITE_WORDS = {
    "timestamp": "timestamp",
    "moment": "strftime('%Y-%m-%d %H:%M:%S', 1704067200 + n * 91, 'unixepoch')",
    "numbers": (
        "(with recursive numbers (n) as (select 1 union all select n + 1 from numbers where n < {most})"
        " select n from numbers)"
    ),
}
POSTGRESQL_WORDS = {
    "timestamp": "timestamptz",
    "moment": "to_timestamp(1704067200 + n * 91)",
    "numbers": "generate_series(1, {most}) as n",
}
FIXED_COLUMNS = (
    "id integer primary key",
    "code varchar(20) not null unique",
    "state text not null check (state in ('new', 'open', 'done'))",
    "parent_id integer references {parent} (id)",
    "owner_id integer references {owner} (id)",
)
TYPES = ("integer", "text", "numeric(10, 2)", "boolean", "timestamp")


def sqlite_shop() -> str:
    """Return the script of the shop, in WAL mode as a server would have it."""
    return f"pragma journal_mode = wal; begin; {_shop(SQLITE_WORDS)} commit; analyze;"


def postgresql_shop() -> str:
    """Return the script of the shop."""
    return f"{_shop(POSTGRESQL_WORDS)} analyze;"


def _shop(words: dict[str, str]) -> str:
    scripts = ((CUSTOMER_TABLE + CUSTOMER_ROWS, CUSTOMERS), (ORDER_TABLE + ORDER_ROWS, ORDERS))
    return "".join(script.format_map(words).replace("{most}", str(most)) for script, most in scripts)


def sqlite_wide() -> str:
    """Return the script of the many tables, their comments where SQLite keeps them: behind the columns."""
    comments = [f" -- the column {at} of table" for at in range(COLUMNS)]
    tables = (_wide_table(number, comments) for number in range(TABLES))
    return f"pragma journal_mode = wal; begin; {''.join(tables)} commit;"


def postgresql_wide() -> str:
    """Return the script of the many tables, with a comment on each table and on each column."""
    bare = [""] * COLUMNS
    return "".join(_wide_table(number, bare) + _comments(number) for number in range(TABLES))


def _wide_table(number: int, comments: list[str]) -> str:
    # The parents are tables that exist by then, the first one its own.
    fixed = [column.format(parent=_name(number // 2), owner=_name(number // 3)) for column in FIXED_COLUMNS]
    rest = [f"column_{at:02d} {TYPES[at % len(TYPES)]}" for at in range(len(fixed), COLUMNS)]
    separators = [","] * (COLUMNS - 1) + [""]
    lines = map("".join, zip(fixed + rest, separators, comments, strict=True))
    return f"create table {_name(number)} (\n" + "\n".join(lines) + "\n);\n"


def _name(number: int) -> str:
    return f"table_{number:04d}"


def _comments(number: int) -> str:
    names = [column.split()[0] for column in FIXED_COLUMNS]
    names += [f"column_{at:02d}" for at in range(len(names), COLUMNS)]
    on_columns = (
        f"comment on column {_name(number)}.{name} is 'the column {name} of table';\n" for name in names
    )
    return f"comment on table {_name(number)} is 'One of many tables';\n" + "".join(on_columns)
