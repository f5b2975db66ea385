-- What analysts ask of the tables of a clinic. A line of dashes separates statements.
----
select * from orders order by id
----
select * from customers order by id
----
select id, name from customers where name like 'A%' or name glob 'C*'
----
select distinct status from orders order by 1
----
select status, count(*) as n, sum(total) as revenue from orders group by status order by revenue desc
----
select status, count(*) from orders group by status having count(*) > 1 order by 1
----
select count(*), count(total), count(distinct customer_id) from orders
----
select avg(total), min(total), max(total), total(total) from orders
----
select c.name, o.total from customers c join orders o on o.customer_id = c.id order by o.id
----
select c.name, sum(o.total) from customers c left join orders o on o.customer_id = c.id group by c.id
order by c.id
----
select c.name from customers c where not exists (select 1 from orders o where o.customer_id = c.id) order
by 1
----
select c.name from customers c where c.id in (select customer_id from orders) order by 1
----
select o.id from orders o left join customers c on c.id = o.customer_id where c.id is null order by 1
----
select o.id, c.name from orders o full join customers c on c.id = o.customer_id order by 1, 2
----
select o.id, c.name from customers c right join orders o on c.id = o.customer_id order by 1
----
select count(*) from orders cross join tags
----
select a.id, b.id from orders a join orders b on a.customer_id = b.customer_id and a.id < b.id
----
select * from orders natural join paid order by id
----
select id, p.total from paid p join orders using (id) order by id
----
select * from (orders o join customers c on c.id = o.customer_id) order by o.id
----
select id, row_number() over (order by total desc nulls last) from orders order by id
----
select id, rank() over (partition by status order by total) from orders order by id
----
select id, dense_rank() over (order by status) as r from orders order by id
----
select id, ntile(2) over (order by id) from orders
----
select id, lag(total) over (order by id), lead(total, 2, 0) over (order by id) from orders
----
select id, sum(total) over (order by id) as running from orders
----
select id, avg(total) over (order by id rows between 1 preceding and 1 following) from orders
----
select id, sum(total) over (order by id groups between 1 preceding and current row exclude ties) from orders
----
select id, first_value(total) over w, last_value(total) over w, nth_value(total, 2) over w from orders
window w as (order by id rows between unbounded preceding and unbounded following)
----
select id, percent_rank() over (order by id), cume_dist() over (order by id) from orders
----
select status, total from (select *, row_number() over (partition by status order by total desc) as n
from orders) where n = 1 order by status
----
select sum(total) filter (where status = 'paid') as paid, count(*) filter (where total > 10) from orders
----
select total from orders where total is not null order by total limit 1 offset (select count(total) / 2
from orders)
----
with m as (select substr(placed, 1, 7) as month, sum(total) as t from orders group by 1) select * from m
order by month
----
with m as (select substr(placed, 1, 7) as month, sum(total) as t from orders group by 1) select month, t,
t - lag(t) over (order by month) from m order by month
----
with m as (select substr(placed, 1, 7) as month, sum(total) as t from orders group by 1) select avg(t)
from m
----
with a as materialized (select * from orders), b as not materialized (select * from a) select count(*)
from b
----
with recursive n(i) as (select 1 union all select i + 1 from n where i < 10) select sum(i) from n
----
with recursive d(day) as (select '2024-01-01' union all select date(day, '+1 month') from d where day <
'2024-06-01') select d.day, count(o.id) from d left join orders o on substr(o.placed, 1, 7) =
substr(d.day, 1, 7) group by 1 order by 1
----
with recursive p(id, path) as (select id, name from customers where id = 1 union all select c.id, p.path
|| '/' || c.name from customers c join p on c.id = p.id + 2) select * from p order by 1
----
select id from orders union select id from customers order by 1
----
select id from orders union all select id from customers order by 1 limit 4
----
select id from orders except select id from customers order by 1
----
select id from orders intersect select id from customers order by 1
----
values (1, 'a'), (2, 'b')
----
select * from (values (1, 'a'), (2, 'b'))
----
select column1 + 1 from (values (1), (2))
----
select case status when 'paid' then 'yes' else 'no' end as paid, count(*) from orders group by 1 order by 1
----
select iif(total > 10, 'large', 'small'), count(*) from orders group by 1 order by 1
----
select coalesce(total, 0), ifnull(note, ''), nullif(status, 'new') from orders order by id
----
select upper(name), lower(name), length(name), substr(name, 1, 2), instr(name, 'n') from customers order
by id
----
select trim('  a '), ltrim('xxa', 'x'), rtrim('a '), replace('abc', 'b', 'x'), 'a' || 'b'
----
select printf('%05.2f', total), format('%s', status) from orders order by id
----
select quote(name), hex(name), unicode(name), char(65, 66), typeof(id) from customers order by id
----
select abs(-1), round(2.567, 2), sign(-3), max(1, 2), min(1, 2), 7 / 2, 7 % 3, 7.0 / 2
----
select sqrt(16), power(2, 10), ln(1), log10(100), exp(0), pi() > 3, floor(2.5), ceil(2.5), trunc(2.9),
mod(7, 3)
----
select cast('12' as integer), cast(12 as text), cast('1.5' as real), cast(1 as blob)
----
select date('2024-02-28', '+2 days'), strftime('%Y-%W', '2024-02-29'), julianday('2024-01-01')
----
select substr(placed, 1, 4) as year, sum(total) from orders group by year order by year
----
select strftime('%m', placed) as month, count(*) from orders where placed is not null group by 1 order by 1
----
select cast(julianday(max(placed)) - julianday(min(placed)) as integer) from orders
----
select unixepoch('2024-01-01'), datetime(0, 'unixepoch'), time('12:30:00', '+1 hour')
----
select date('now') = current_date, datetime('now') <= datetime('now', '+1 day')
----
select length(current_timestamp), length(current_time)
----
select json_extract(note, '$.a[1]') from orders where json_valid(note)
----
select note -> '$.a', note ->> '$.a[0]' from orders where json_valid(note)
----
select json_object('id', id, 'total', total) from orders order by id
----
select json_group_array(id), json_group_object(id, status) from (select * from orders order by id)
----
select j.value from orders o, json_each(o.note, '$.a') j where json_valid(o.note)
----
select j.fullkey, j.atom from orders o join json_tree(o.note) j where json_valid(o.note) and j.atom is
not null
----
select value from json_each('[3, 1, 2]') order by value
----
select json_array(1, 'a', null), json_type('[1]'), json_array_length('[1, 2]'), json_set('{}', '$.a', 1)
----
select json_remove('{"a": 1}', '$.a'), json_patch('{}', '{"b": 2}'), json_quote('a'), json('[1 ]')
----
select group_concat(name, ', ') from (select name from customers order by name)
----
select group_concat(distinct status) from (select status from orders order by status)
----
select title from docs where docs match 'hello' order by title
----
select title from docs('hello AND again')
----
select highlight(docs, 1, '[', ']'), snippet(docs, 1, '<', '>', '…', 3) from docs where docs match
'hello' order by rowid
----
select title, round(bm25(docs), 3) <= 0 from docs where docs match 'hello' order by rank, rowid
----
select d.title, t.name from docs d join tags t on t.weight = d.rowid where d.body match 'hello' order by 1
----
select count(*) from docs where title = 'one'
----
select rowid, title from docs order by rowid
----
select rowid, id from orders order by rowid
----
select * from orders where (status, total) = ('paid', 20)
----
select * from orders where (status, id) in (values ('paid', 2), ('new', 4)) order by id
----
select * from orders where total between 5 and 20 order by id
----
select * from orders where status in ('new', 'paid') and not (total < 20) order by id
----
select * from orders where note = 'RED' order by id
----
select * from orders where note = 'RED' collate binary
----
select id from orders order by status desc nulls last, total desc limit 2 offset 1
----
select id from orders order by status collate nocase, 1 desc
----
select 1 where 1 in (1, 2) and 3 not in (4) and null is null and 'a' is not 'b'
----
select 1 is distinct from null, 1 is not distinct from 1
----
select 'it''s', "id", `total`, [status] from orders where id = 1
----
select o."id" as "order id" from orders as o where o.id = 2
----
select 0x1F, 1e3, .5, -1, +1, ~1, 1 << 3, 5 & 3, 5 | 3, not 0
----
select x'00ff', zeroblob(2), cast(x'41' as text), null, 9007199254740993, 1e999, -1e999
----
select exists (select 1 from orders where total > 100), (select max(total) from orders)
----
select (select name from customers c where c.id = o.customer_id) as who, total from orders o order by id
----
select o.id, (select count(*) from orders p where p.id <= o.id) from orders o order by 1
----
select region, amount from customers where amount > (select avg(amount) from customers) order by 1
----
select region, count(*), sum(amount) from customers group by region
----
select name from customers order by amount desc limit 1
----
select t.name, t.weight * 1.0 / sum(t.weight) over () from tags t order by t.name
----
select * from tags where weight is null or weight > 1 order by name
----
select sum(weight), count(*) from tags
----
select * from paid order by total desc
----
select p.id, c.name from paid p join orders o using (id) join customers c on c.id = o.customer_id order
by p.id
----
select count(*) from orders not indexed where status = 'paid'
----
select * from orders not indexed order by id
----
-- a comment
select /* another */ count(*) from orders;
----
SELECT COUNT(*) FROM Orders AS O WHERE O.Status = 'paid'
----
select total > 10 as large, count(*) from orders where total is not null group by large order by 1
----
select id, total, sum(total) over (partition by status) as of_status from orders order by id
----
select max(n) from (select count(*) as n from orders group by customer_id)
----
select avg(d * d) - avg(d) * avg(d) from (select total as d from orders where total is not null)
----
select likely(1), unlikely(0), substring('abc', 2), likelihood(1, 0.5)
----
select * from main.orders order by id
----
select main.customers.name, o.total from main.customers join MAIN.orders as o on o.customer_id = main.customers.id
order by o.id
----
select "main"."orders".id from "main"."orders" order by 1
----
select main.id from orders as main order by main.id
----
select 'main' as word, count(*) from main.orders
----
with recursive days(day) as (select date('2024-01-01') union all select date(day, '+1 day') from days
where day < '2024-01-10') select day, count(o.id) from days left join main.orders o on 1 = 0 group by day
----
select total, (select count(*) from orders b where b.total <= a.total) * 1.0 / count(*) over () as share
from orders a order by a.id
----
select status, printf('%.1f', 100.0 * sum(total) / sum(sum(total)) over ()) as percent from orders
group by status order by 1
