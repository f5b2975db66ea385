"""Which masked columns a caller's SQL uses for more than to show them."""

import pytest
from hypothesis import given, strategies as st

from dbtools.schema.catalog import Column, Table
from dbtools.schema.sql import words
from dbtools.tools.run_sql import masked_in
from dbtools.values.types import ColumnType, Family, Mask

INTEGER = ColumnType(family=Family.INTEGER, name="integer")
ORDERS = Table(name="orders", columns=(Column(name="id", type=INTEGER),))
MASKED = ColumnType(family=Family.TEXT, name="masked", mask=Mask.PARTIAL)
PEOPLE = Table(
    name="People",
    columns=(
        Column(name="id", type=INTEGER),
        Column(name="Email", type=MASKED),
        Column(name="due on", type=MASKED),
    ),
)
USED = (
    "select id from people where email = 'a@example.com'",
    "select count(*) from people where email like 'a%'",
    "select length(email), count(*) from people",
    "select email || 'x' from people",
    "select email is null from people",
    "select not email from people",
    "select distinct email from people",
    "select all email from people where email = 'a'",
    "select count(*) filter (where p.email > '') from people p",
    'select id from "People" p where p."Email" = \'a\'',
    "select id from main.people where people.email in (select 'a')",
    "select id, email from people order by email",
    "select email as e from people order by e",
    "select email, count(*) from people group by email",
    "select p.id from people p join people q using (email)",
    "select p.id from people p join people q on p.id = q.id and p.email = q.email",
    "with p as (select email as e from people) select count(*) from p where e = 'a'",
    "select id, row_number() over (order by email) from people",
    "select id from people union select email from people",
    "select case email when 'a' then 1 end from people",
    "select email = 'a' from people",
    "select id as email from people where email = 'a'",
    "select email > 'a', id from people",
)
#: Statements that use, or may use, all columns of a row, or columns by other names.
ROWS = (
    "select * from (select * from people) where email = 'a'",
    "select count(p) from people p where p::text like '%example%'",
    "select p::text from people as p",
    "select people::text from people",
    "select id from people p where p is not null",
    "select id from people where people match 'a'",
    "select * from 'people' order by 2",
    "select count(distinct p.*) from people p",
    "select row_to_json(p.*) from people p",
    "select p as q from people p order by q",
    'select "People"::text from "People"',
    "select id from orders, people p where p = p",
    "select id from orders o join people p on o.id = p.id and p::text > ''",
    "select count(*) from people natural join others",
    "select id from people natural left join people as q",
    "select b from people as p(a, b, c) where b = 'a'",
    "select b from people p (a, b, c) where b = 'a'",
    "select distinct * from people",
    "select * from people union select * from people",
    "select id from people where exists (select p.* from people intersect select 1)",
    "select * from people order by 2",
    "select p.*, 1 from people p order by 1, 3 desc",
    "select * from (select * from people) as q (a, b, c) where b = 'a'",
    "with q (a, b, c) as (select * from people) select a from q order by b",
    "select id from people where (id, 'a', 'b') in (select * from people)",
)
#: Statements that sort or group by the position of a column, or compare all columns of a list.
LISTED = (
    "select id, email from people order by 2",
    "select id, email from people order by 1, 2 desc nulls last limit 3",
    "select email, count(*) from people group by 1",
    "select id, email from people order by (2)",
    "select id, email from people order by +2",
    "select id, email from people order by 002",
    "select id, email from people order by 99999999999999999999",
    "select id, email from people order by ((2)) collate nocase",
    "select count(*), email from people group by rollup (2)",
    "select distinct id, email from people",
    "select distinct on (2) id, email from people",
    "select email from people union select 'a'",
    "select email from people except select 'a' order by 1",
)
SHOWN = (
    "select id, email from people",
    "select all_.email, p.id as email_of from people p where id > 3 order by id",
    "select p.email as mail, id i, p.* from people p where id = 5",
    "select \"Email\" from people where name = 'email' -- email = 3",
    "with p as (select 1) select email from people",
    "select id from orders where email = 'a'",
    "select 'email'",
    "select id, email from people order by 1",
    "select id, email from people order by id limit 2 offset 2",
    "select p.email, round(p.id, 2) from people as p order by round(p.id, 2), p.id",
    "select p.email, o.id from orders o left join people p on o.id = p.id, people q where o.id = 2",
    "select p.email, o.id from orders o join people p using (id) where p.id * 2 > 1",
    "select * from people",
    "select p.*, o.id from people p, orders o where p.id = o.id",
    "select email from main.people limit 1",
    "select email from people where id = (select count(*) from people)",
    "select $$email = 1$$, e'\\' email', email from people /* email = 1",
)


@pytest.mark.parametrize(
    ("sql", "masked"),
    [
        *((sql, ["Email"]) for sql in (*USED, *LISTED)),
        *((sql, ["Email", "due on"]) for sql in ROWS),
        *((sql, []) for sql in SHOWN),
    ],
)
def test_masked_columns_that_are_more_than_shown_are_found(sql: str, masked: list[str]) -> None:
    assert masked_in(sql, (ORDERS, PEOPLE)) == masked


def test_masked_column_whose_name_needs_quotes_is_found() -> None:
    assert masked_in("select id from people where \"due on\" > '2024' or `email` = 1", [PEOPLE]) == [
        "due on",
        "Email",
    ]


@given(
    st.lists(
        st.sampled_from(
            [
                *"(),;.'\"`-/*=[$2e",
                "--",
                *sorted(words("select from as order group by natural email people")),
                " ",
            ]
        ),
        max_size=40,
    )
)
def test_any_text_is_searched_for_masked_columns(parts: list[str]) -> None:
    assert set(masked_in(" ".join(parts), [PEOPLE])) <= {"Email", "due on"}
