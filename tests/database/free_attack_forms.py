"""More attacks by free SQL: one statement a line, in places and forms that are easily forgotten."""

from collections.abc import Iterator

BOM = "\ufeff"  #: whitespace for SQLite, if it comes before a word
#: Where a statement may name a table `{t}`.
TABLE_FORMS = """
select * from orders natural full join {t}
select * from orders natural right join {t}
select count(*) from {t} a natural join {t} b
select * from (values (1)) natural join {t}
select 1 from orders where (id, customer_id) in {t}
select 1 from orders where (1, 'CAN' || 'ARY', 'Ann') in {t}
select (select 1, 2) = (select id, v from {t})
select (1, 2) between (select id, v from {t}) and (3, 4)
select id in (table {t}) from orders
select * from orders where id = any (select 1 from {t})
select * from ({t})
select * from (({t}))
select * from (orders, {t})
select * from (orders natural join {t}) as x
select * from orders as {t}
select * from orders {t} join {t} on 1
with {t} as (select 1 as v) select * from {t}
with {t} as (select v from {t}) select * from {t}
with {t}(v) as (select 1 union all select v + 1 from {t} where v < 3) select * from {t}
with recursive {t} as (select v from {t}) select 1
with a as (with {t} as (select 1 as v) select * from {t}) select * from a, {t}
with a as (select * from b), b as (select * from {t}) select * from a
with a as not materialized (select * from {t}) select 1 from a where 0
select 1 from {t} where 0
select 1 from {t} where null
select 1 from orders left join {t} on 0
select distinct o.id from orders o left join {t} on {t}.id = o.id
select 1 where 0 and exists (select 1 from {t})
select 1 or (select v from {t})
select case when 0 then (select v from {t}) end
select iif(0, (select v from {t}), 1)
select null in {t}
select 1 in (select v from {t} limit 0)
select exists (select * from {t} limit 0)
select 1 union all select 2 from {t} where 0
select 1 limit 0 offset (select count(*) from {t})
select 1 from orders order by (select 1 from {t}) limit 1
select id from orders order by exists (select 1 from {t} where {t}.id = orders.id)
values (1), ((select v from {t}))
select * from (values (1), (2)) where column1 in {t}
select sum(id) over (rows between (select 1 from {t}) preceding and current row) from orders
select nth_value(v, 1) over (partition by 1 order by 1) from {t}
select first_value(v) over w from {t} window w as (order by id groups 2 preceding)
select lag(id, 1, (select v from {t})) over () from orders
select group_concat(v, (select ',' from {t})) from {t}
select json_group_object(id, v) from {t}
select json_object('a', (select json_group_array(v) from {t}))
select value from json_each((select v from {t}))
select * from json_tree('[1]', (select v from {t}))
select * from orders, json_each(orders.note) j, {t}
select * from json_each('[1]') natural join {t}
select key from json_each('[1]') join {t} using (id)
select '[1]' ->> (select v from {t})
select * from docs where docs match (select v from {t})
select * from docs('hello') , {t}
select * from docs where rank match (select v from {t})
select bm25({t}) from {t}
select highlight({t}, 0, '', '') from docs
select matchinfo({t}) from {t}
select offsets({t}) from {t}
select rank from {t}
select * from {t}('CAN' || 'ARY')
select * from {t}_config
select * from {t}_data
select * from {t}_docsize
select {t} from docs
select docs from {t}
select * from docs where {t} match 'a'
select count({t}) from {t}
select count({t}.rowid) from {t}
select oid, _rowid_ from {t}
select max(rowid) from {t}
select {t}.rowid from orders
select orders.rowid from orders, {t}
select v collate {t} from {t}
select 'a' collate {t}
select cast(1 as {t})
select {t}(1)
select {t}()
select {t}(distinct id) from orders
select id {t} from orders
select * from orders indexed by {t}
select * from orders group by {t}
select * from orders window {t} as (order by id)
select sum(id) over {t} from orders
select * from orders join tags using ({t})
select * from main.{t}, nothere
select * from [main].{t}
select * from 'main'.{t}
select * from xfile.{t}
select * from temp.{t} as orders
select * from sqlite_temp.{t}
select temp.{t}.v from {t}
select main.{t}.v from orders
select * from{bom}{t}
select *,(select v from{t}) from orders
select * from/*{t}*/{t}
select*from(select*from{t})
select * from orders where note = '{t}'
select "{t}" from orders
select * from orders where "{t}" = "{t}"
select * from orders where `{t}`
select {t}.* from orders
select {t}.*, orders.* from orders, {t}
select * from {t} limit 1 offset 9223372036854775807
select * from {t} limit -1
select v from {t} union select v from {t} order by 1
select * from paid union select * from {t}
select * from {t} intersect select * from {t}
select 1 except select count(*) from {t}
select * from {t} tablesample bernoulli (10)
select * from lateral (select * from {t})
select * from orders, lateral {t}
table {t}
with a as (table {t}) select * from a
select * from only {t}
select * from {t} for update
select v into a from {t}
select * from {t} t(a)
select * from {t} as t where t.v is not distinct from 'CAN' || 'ARY'
select * from orders o where o.id not in (select id from {t} where {t}.id = o.id)
select (select (select (select v from {t})))
select * from orders where id in (with a as (select id from {t}) select * from a)
select * from orders o, (select * from {t} where id = o.id)
select abs((select v from {t}))
select zeroblob((select count(*) from {t}) * 1000000000)
select unlikely(v) from {t}
select likelihood(v, 0.5) from {t}
select load_extension((select v from {t}))
select printf('%s', v), format('%q', v), quote(v), hex(v), unicode(v) from {t}
""".replace("{bom}", BOM)
#: How it may be written.
TABLES = ("secrets", '"secrets"', "v_secrets", "mails", "numbered")
#: Where a statement may name a column `{c}` of customers.
COLUMN_FORMS = """
select {c} from customers, orders
select {c} from orders, customers where orders.id = 1
select * from customers where ({c}, id) = (1, 1)
select * from customers where ({c}, id) in (select 1, 1)
select * from customers where 1 in ({c})
select {c} -> '$' from customers
select json_extract(customers.{c}, '$') from customers
select id from customers join json_each({c})
select * from customers, json_each(customers.{c})
select * from json_each((select {c} from customers limit 1))
select id from customers order by 1, {c} collate nocase
select id from customers group by {c}
select id from customers group by id, {c} having 1
select id from customers group by id having {c}
select distinct {c} from customers
select sum(1) over (partition by {c}) from customers
select sum(amount) over (order by {c} rows 1 preceding) from customers
select ntile(2) over w from customers window w as (order by {c})
select lag({c}) over (order by id) from customers
select group_concat(id, {c}) from customers
select max(amount) filter (where {c} = 1) from customers
select c.{c} from customers as c join orders
select a.{c} from customers a natural join customers b
select * from customers a join customers b using ({c})
select * from customers natural join (select null as {c})
select {c} from customers natural join (select null as {c})
select {c} from customers left join (select 5 as {c}) on 1
select customers.{c} from customers left join (select 5 as {c}) on 1
select {c} from (select 5 as {c}) left join customers on 1
select coalesce({c}, 1) from customers full join (select 1 as {c}) using (id)
with customers({c}) as (select 7) select {c} from customers
with c as (select * from customers) select {c} from c
with c({c}) as (select 1) select {c} from customers, c
select (select {c} from orders) from customers
select (select customers.{c} from orders limit 1) from customers
select * from orders where id = (select {c} from customers where id = 1)
select * from orders where exists (select 1 from customers c where c.{c} = orders.note)
select id from customers limit (select {c} from customers)
select id from customers limit {c}
values ((select {c} from customers))
select {c} from customers union all select {c} from customers
select id from customers union select id from customers order by {c}
select {c} collate nocase from customers
select cast({c} as integer) from customers
select typeof({c}), length({c}) from customers
select quote({c}) from customers
select rowid, {c} from customers
select {c} from main.customers
select main.customers.{c} from customers
select temp.customers.{c} from temp.customers
select customers . {c} from customers
select 'customers'.{c} from customers
select [customers].{c} from customers
select *, {c} from customers
select {c}, * from paid, customers
select case when id = 2 then {c} end from customers
select iif({c}, 1, 0) from customers
select id between {c} and 9 from customers
select {c} in customers from customers
select {c} is {c} from customers
select not {c} from customers
select -{c} from customers
select ~{c} from customers
select {c} glob '*' from customers
select id from customers where {c} match 'a'
select id from customers where {c} regexp 'a'
select id from customers where id like '1' escape {c}
select id as x from customers where x = {c}
select 1 as {c} from customers where {c} = 1
select 1 as {c} from customers group by {c}
select id from customers indexed by {c}
select {c}(id) from customers
select sum(id) over {c} from customers
"""
COLUMNS = ("ssn", "line_total", "code")
#: Where a statement may name a table of SQLite's own, `{n}`.
ENGINE_FORMS = """
select * from {n}
select count(*) from {n}
select 1 from {n} where 0
select count(*) from (select 'secrets' as name) join {n} using (name)
select name from (select 'x' as name) natural full join {n}
select 'secrets' in {n}
select 1 from {n}('secrets')
with a as (select 1 from {n}) select 1 from a
select * from temp.{n}
select * from main.{n}
"""
ENGINE_TABLES = """
sqlite_master sqlite_temp_schema sqlite_sequence sqlite_stat1 sqlite_stmt dbstat
pragma_table_list pragma_database_list pragma_table_info
"""
OTHERS = """
with orders as (select 1 as id, 99 as total, 'paid' as status) select * from paid
with orders as (select id, total, 'paid' as status from orders) select * from paid
with paid as (select 1) select * from orders, paid
with customers as (select 2 as id, 'south' as region) select * from customers natural join orders
with secrets(name, id) as (select 'Ann', 9) select * from customers
with secrets as (select name, 9 as id from customers) select id from customers
with s as (select name, 9 as id from customers) select * from customers s
select * from customers where region = :claims.region
select * from customers where region = 'north' or not exists (select 1 from secrets)
select name from customers union select name from customers order by 1 limit 5
select * from customers a, customers b where a.id = b.id + 1
select a.id from customers a full join customers b on a.id = b.amount
select a.id, b.id from customers a right join customers b on a.id = 2
select * from (select * from customers) natural left join (select 2 as id)
select x.id from (select 2 as id) x left join customers using (id) where customers.id is null
select id from (values (1), (2), (3), (4), (5)) v(id) left join customers using (id)
select column1, exists (select 1 from customers where id = column1) from (values (1), (2), (3), (4))
select column1 in (select id from customers) from (values (1), (2), (null))
select count(*) filter (where region <> 'north') from customers
select min(id), max(id), count(distinct region) from customers
select region, count(*) from customers group by region
select id, id - lag(id) over (order by id) from customers
select id from customers where id > 1 order by id limit 1
select id from customers where amount between -9223372036854775808 and 0
select sum(amount) from customers
select sum(amount * amount) from customers
select total(-amount), avg(amount) from customers
select -amount from customers
select abs(amount) from customers where region = 'south'
select amount / 0, amount % 0 from customers
select cast(name as integer) + 9223372036854775807 from customers
select json(name) from customers where region = 'south'
select name -> '$' from customers where name like '{%'
select * from customers, json_tree(name)
select json_each.value from customers, json_each(customers.name) where customers.region = 'south'
select json_group_array(json(name)) from customers
select zeroblob(amount) from customers
select substr(name, amount) from customers
select printf('%.*c', amount, 'x') from customers
select replace(name, '', name) from customers
select hex(email), hex(phone), hex(remark) from customers
select email || phone from customers
select unicode(email), instr(email, 'CAN' || 'ARY') from customers
select email > 'm', email < 'm' from customers
select email = phone from customers
select min(email), max(email) from customers
select email from customers order by email desc limit 1
select count(*), email from customers group by email having count(*) > 0
select a.id, b.id from customers a join customers b on a.email = b.email
select email glob '*CAN*', email like '%CAN%' from customers
select * from customers where 'CAN' || 'ARY' in (email, phone, remark)
select * from customers order by phone, remark, email
select email collate nocase, email collate rtrim from customers
select dense_rank() over (order by phone) from customers
select * from gaps order by rowid desc
select count(*) from gaps
select max(rowid), min(oid) from gaps
select * from gaps where id = 987654
select * from gaps a natural join gaps b
select total(id) from gaps
select * from gaps full join orders using (id)
select 1 from (select * from gaps where id > 100)
select exists (select 1 from gaps where id > 100)
select * from gaps union all select * from gaps
select * from gaps indexed by sqlite_autoindex_gaps_1
select * from customers not indexed
select rowid from customers natural join gaps
select rowid from customers, gaps
select rowid from gaps, orders
select * from docs where docs match 'CAN' || 'ARY'
select * from docs where docs match 'subject : a'
select rank, bm25(docs), rowid from docs where docs match 'hello'
select * from docs where docs match 'hello' and rank match 'bm25(1, 2)'
select * from docs where rank match 'snippet(0)'
select * from docs where rank match 'nothere()' and docs match 'a'
select * from docs('hello') order by rank
select docs from docs
select * from docs where docs = 'hello'
select highlight(docs, 9, 'a', 'b') from docs where docs match 'hello'
select snippet(docs, -1, '<', '>', '…', 9999) from docs('hello')
select * from docs a, docs b where a match 'hello' and b match 'again'
select * from docs where docs match '*'
select * from docs where docs match '^'
select * from docs where docs match '"'
select * from docs where docs match 'NEAR(hello world, 999999999999)'
select * from docs where docs match char(0)
select * from docs where docs match x'00'
select * from docs where docs match null
select * from docs where docs match 'a' || char(55296)
select fts5(docs) from docs
select * from docs_content natural join orders
select * from docs_idx where 0
select 1 in docs_data
select 0x1ffffffffffffffff
select [a
select `a
select [] from orders
select * from []
select * from ``
select * from ''
select * from ""
select orders."" from orders
select /*/ 1 */ 2
select /**/ 1
select 1 /* */ ;;
with a as (select 1) explain select 1
with a as () select 1
select * from orders where id = $1
select * from orders where id = @x
select * from orders where id = ?99999
select * from orders where id = #1
select * from orders where id = :a::text
select cast(:a as int)
select ':a', ":a", `:a`, [:a] from orders
select * from orders where 1 = '$a'
select 'a$b', a$b from orders
select changes()
select last_insert_rowid()
select total_changes()
select sqlite_source_id()
select sqlite_compileoption_used('X')
select fts5_source_id()
select rtreenode(2, x'00')
select rtreedepth(x'00')
select subtype(1)
select sqlite_offset(1)
select sqlite_log(1, 'a')
select fts3_tokenizer('simple', x'00')
select icu_load_collation('a', 'b')
select strftime('%s', 'now', 'nothere') is null
select date('now', (select 'CAN' || 'ARY'))
select * from orders where rowid = 'CAN' || 'ARY'
select * from orders where id in (select id from orders limit -1)
select * from (orders o join tags t)
select o.* from (orders o join tags t)
select rowid from tags
select _rowid_ from paid
select oid from docs
"""
#: Spaces that only SQLite, or only other programs, take for white space.
SPACES = ("\ufeff", "\u00a0", "\u2028", "\v", "\f", "\x85", "\u200b")


def more_attacks() -> Iterator[str]:
    """Yield every attack."""
    for form in lines(TABLE_FORMS):
        yield from (form.replace("{t}", table) for table in TABLES)
    for form in lines(COLUMN_FORMS):
        yield from (form.replace("{c}", column) for column in COLUMNS)
    for form in lines(ENGINE_FORMS):
        for name in ENGINE_TABLES.split():
            yield from (form.replace("{n}", written) for written in (BOM + name, f"'{name}'"))
    yield from lines(OTHERS)
    yield from (f"select{space}1{space}from{space}secrets{space}" for space in SPACES)


def lines(text: str) -> list[str]:
    """Return the statements in *text*."""
    return text.strip().split("\n")
