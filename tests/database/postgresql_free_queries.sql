select * from regions order by id

select id, name, region, mood, born, tags, profile from customers order by id

select c.name, count(*) as n, sum(o.total) as revenue from customers c join orders o on o.customer_id = c.id
group by c.name order by revenue desc

select name from customers where id not in (select customer_id from orders where customer_id is not null)

select c.name, o.id, o.total from customers c cross join lateral (
    select * from orders where customer_id = c.id order by total desc limit 2) o order by 1, 3 desc

select * from (select id, customer_id, total, row_number() over (partition by customer_id order by total desc) as rn
    from orders) x where rn <= 2 order by customer_id, rn

select date_trunc('month', ordered_on) as month, sum(total) from orders group by 1 order by 1

select to_char(ordered_on, 'YYYY-MM') as month, count(*) from orders group by month order by month

select extract(year from ordered_on) as y, extract(month from ordered_on) m, count(*) from orders group by 1, 2 order by 1, 2

select percentile_cont(0.5) within group (order by total) as median, percentile_disc(0.9) within group (order by total) from orders

select mode() within group (order by status) from orders

select status, count(*) filter (where total > 100) as large, avg(total)::numeric(10,2) from orders group by status order by status

select status, customer_id, sum(total) from orders group by grouping sets ((status, customer_id), (status), ()) order by 1, 2

select status, customer_id, grouping(status, customer_id), count(*) from orders group by rollup (status, customer_id) order by 1, 2, 3

select status, customer_id, count(*) from orders group by cube (status, customer_id) order by 1 nulls last, 2 nulls first

with monthly as (select date_trunc('month', ordered_on)::date as m, sum(total) as s from orders group by 1)
select m, s, s - lag(s) over (order by m) as change, round(100 * s / lag(s) over (order by m), 1) as percent from monthly order by m

with recursive n(i) as (select 1 union all select i + 1 from n where i < 10) select sum(i), max(i) from n

with recursive chain as (
    select id, boss_id, 1 as depth from orders where boss_id is null
    union all select o.id, o.boss_id, c.depth + 1 from orders o join chain c on o.boss_id = c.id)
select depth, count(*) from chain group by depth order by depth

with a as (select 1 as x), b as (select x + 1 as x from a), a2 as materialized (select * from b) select * from a, a2

with customers as (select 7 as id) select * from customers

with orders as (select id, total from orders where total > 300) select count(*), max(total) from orders

select (with t as (select id from regions) select count(*) from t), (select max(id) from regions)

select sum(total) over (order by id rows between 2 preceding and current row) from orders order by id limit 10

select id, sum(total) over w as running, avg(total) over w from orders window w as (partition by status order by id) order by id

select id, total, rank() over (order by total desc), dense_rank() over (order by status), ntile(4) over (order by id),
    first_value(id) over (order by total), last_value(id) over (order by total rows between unbounded preceding and unbounded following),
    nth_value(id, 3) over (order by id), percent_rank() over (order by id), cume_dist() over (order by id) from orders order by id

select id, sum(total) over (order by ordered_on range between interval '30 days' preceding and current row) from orders order by id

select id, count(*) over (order by status groups between 1 preceding and 1 following exclude current row) from orders order by id

select distinct on (customer_id) customer_id, id, total from orders order by customer_id, total desc

select distinct status from orders order by status desc

select id from orders where status = 'paid' union select id from regions order by id

select id from orders where id < 5 union all select id from regions order by 1

select id from orders intersect select id from regions order by id

(select id from orders order by id limit 3) except (select id from regions) order by id

values (1, 'a'), (2, 'b')

select v.*, r.name from (values (1, 'x'), (2, 'y')) as v(n, s) join regions r on r.id = v.n order by n

select name, coalesce(mood::text, 'none'), nullif(id, 3), greatest(id, 2), least(id, 2) from customers order by id

select case when total > 200 then 'large' when total > 100 then 'medium' else 'small' end as size, count(*) from orders group by 1 order by 1

select case status when 'new' then 1 else 0 end as flag, count(*) from orders group by 1 order by 1

select total::int, cast(total as text), total::numeric(10,1), total::double precision, cast(id as varchar(1)) from orders order by orders.id limit 3

select ordered_on + 7, ordered_on - date '2024-01-01', ordered_on + interval '1 month', age(ordered_on, date '2023-01-01') from orders order by id limit 3

select placed at time zone 'Europe/Berlin', date_part('hour', placed), placed - interval '2 hours', placed::date from orders order by id limit 3

select extract(epoch from placed), extract(dow from placed), extract(isoyear from placed) from orders order by id limit 3

select (date '2024-01-01', date '2024-02-01') overlaps (date '2024-01-15', date '2024-03-01')

select make_date(2024, 2, 29), make_interval(days => 3, hours => 2), justify_interval(interval '40 days'), date_bin('7 days', timestamp '2024-01-10', timestamp '2024-01-01')

select interval '1' day + interval '2 hours' * 3, timestamp with time zone '2024-01-01 00:00+01', time '10:30', date 'infinity'

select generate_series::date from generate_series(date '2024-01-01', date '2024-01-05', interval '1 day') order by 1

select d::date, coalesce(sum(o.total), 0) from generate_series(date '2024-01-01', date '2024-02-01', '1 week') as d left join orders o on o.ordered_on >= d and o.ordered_on < d + interval '1 week' group by d order by d

select name, tag from customers, unnest(tags) as tag order by 1, 2

select name, t.tag, t.n from customers left join lateral unnest(tags) with ordinality as t(tag, n) on true order by 1, 3

select name, cardinality(tags), array_length(tags, 1), tags[1], tags[1:1], array_to_string(tags, '-') from customers order by id

select array_agg(id order by id desc) from regions

select array(select id from regions order by id), array[1, 2] || 3, array[[1,2],[3,4]]

select name from customers where 'a' = any(tags) or tags @> array['b'] or tags && array['c'] order by 1

select id from orders where status in ('new', 'sent') and id = any(array[1, 2, 3]) order by id

select id from orders where id <> all(array[1, 2]) and id < 5 order by id

select profile -> 'vip', profile ->> 'vip', profile #> '{n,0}', profile #>> '{n,1}', profile ? 'vip', profile @> '{"vip": true}' from customers order by id

select jsonb_array_length(lines), lines -> 0 ->> 'sku', (lines -> 0 ->> 'n')::int from orders order by id limit 5

select l ->> 'sku' as sku, sum((l ->> 'n')::int) from orders, jsonb_array_elements(lines) as l group by 1 order by 2 desc, 1 limit 5

select x.sku, sum(x.n) from orders, jsonb_to_recordset(lines) as x(sku text, n int) group by x.sku order by 2 desc, 1 limit 5

select key, value from customers, jsonb_each_text(profile) where id = 1 order by key

select jsonb_path_query_array(lines, '$[*] ? (@.n > 1).sku') from orders order by id limit 5

select id from orders where lines @? '$[*] ? (@.n == 3)' order by id limit 3

select jsonb_agg(jsonb_build_object('id', id, 'name', name) order by id) from regions

select json_agg(r order by id), to_jsonb(max(name)), json_build_array(1, 'a') from regions r

select jsonb_object_agg(name, id) from regions

select row_to_json(r) from regions r order by id

select profile || '{"x": 1}', profile - 'vip', jsonb_set(profile, '{vip}', '5') from customers order by id

select string_agg(name, ', ' order by name desc), string_agg(distinct region, ',') from customers

select upper(name), lower(name), initcap('ab cd'), length(name), left(name, 1), right(name, 1), reverse(name), repeat('x', 3), lpad(name, 5, '*'), rpad(name, 5) from customers order by id

select substring(name from 1 for 2), substring(name, 2), substr(name, 1, 1), position('n' in name), strpos(name, 'n'), overlay(name placing 'x' from 1 for 1), trim(both 'x' from 'xax'), btrim('  a '), ltrim('xa', 'x'), replace(name, 'n', 'm'), split_part('a,b', ',', 2), translate(name, 'A', 'B') from customers order by id

select name || ' (' || region || ')', concat(name, null, 1), concat_ws('-', 'a', null, 'b'), format('%s is %s', name, id), md5(name), encode(sha256('a'::bytea), 'hex'), ascii('a'), chr(65) from customers order by id

select name from customers where name ilike 'a%' or name like '%d' or name ~ '^E' or name ~* 'ann' or name !~ '.' or name similar to '(A|B)%' order by 1

select name from customers where name not like 'A%' and name not ilike '%x%' escape '!' order by 1

select regexp_replace(name, '[aeiou]', '*', 'g'), regexp_match(name, '(.)n'), regexp_split_to_array('a1b', '\d'), (regexp_matches(name, '^.'))[1] from customers order by id

select round(total, 1), round(total), trunc(total), ceil(total), floor(total), abs(-total), mod(id, 3), id % 3, id / 3, div(id, 3), power(id, 2), id ^ 2, sqrt(id), ln(id), log(10, id), exp(1), sign(total), width_bucket(total, 0, 400, 4) from orders order by id limit 5

select stddev(total), variance(total), corr(id, total), regr_slope(total, id), covar_pop(id, total), bool_and(total > 0), bool_or(id > 39), every(id > 0), bit_or(id) from orders

select 7 & 3, 7 | 8, 7 # 2, ~7, 1 << 3, 16 >> 2, |/ 16, ||/ 27, @ -5, -2 ^ 2, 2 ^ 3 ^ 2, 5 / 2, 5 % 3, 5.0 / 2

select 1 - (2 - 3), not true or true, not (1 = 2), 1 = 1 is true, null is null, 1 is distinct from null, 1 between 0 and 2, 3 between symmetric 4 and 2, 1 not between 2 and 3

select (1, 2) < (1, 3), row(1, 2) = row(1, 2), (1, null) is null, (id, name) in (select id, name from regions) from regions order by id

select int4range(1, 5) @> 3, daterange('2024-01-01', '2024-02-01') && daterange('2024-01-15', '2024-03-01'), upper(int4range(1, 5)), numrange(1, 2) -|- numrange(2, 3), '[1,3)'::int4range

select '10.0.0.1'::inet << '10.0.0.0/8'::inet, host('10.0.0.1/8'::inet), '3f333df6-90a4-4fda-8dd3-9485d27cee36'::uuid

select to_tsvector('english', 'the quick foxes') @@ to_tsquery('english', 'fox'), ts_rank(to_tsvector('a b'), plainto_tsquery('a')), websearch_to_tsquery('simple', 'a -b')

select point(1, 2) <-> point(4, 6), '(0,0),(1,1)'::box && '(0,0),(2,2)'::box

select E'tab\there', 'it''s', $$dollar's$$, 'back\slash', U.n from (select 1 as n) as u

select 'a' || 'b' as joined, 1e3, .5, 5., 1.5e-3, -1, + 2

select name collate "C" from customers order by name collate "C" desc

select c1.name, c2.name from customers c1 join customers c2 on c1.id < c2.id order by 1, 2

select * from regions natural join (values (1, 'north')) as v(id, name)

select * from regions r join (values (2, 'x')) as v(id, label) using (id)

select r.name, v.n from regions r full outer join (values (2, 'x'), (3, 'y')) as v(id, n) on r.id = v.id order by 1 nulls last, 2

select r.name, v.n from regions r left join (values (2, 'x')) as v(id, n) on r.id = v.id order by 1

select r.name, v.n from regions r right join (values (2, 'x'), (9, 'z')) as v(id, n) on r.id = v.id order by 2

select a.id, b.id from regions a cross join regions b order by 1, 2

select * from (regions r join (values (1, 'p')) as v(rid, p) on v.rid = r.id) order by 1

select exists (select 1 from orders where total > 400), not exists (select from orders where total > 1000)

select name, (select count(*) from orders o where o.customer_id = c.id) as n from customers c order by n desc, name

select name from customers c where exists (select 1 from orders o where o.customer_id = c.id and o.status = 'paid') order by name

select id from orders order by id offset 5 limit 3

select id from orders order by id fetch first 3 rows only

select status from orders order by status fetch first 2 rows with ties

select id from orders order by total desc, id asc nulls last limit (select count(*) from regions)

select id, total from orders where total > (select avg(total) from orders) order by id

select customer_id, count(*) from orders group by customer_id having count(*) > 13 order by 1

select count(distinct customer_id), count(distinct (customer_id, status)), sum(distinct id) from orders

select "Some Column" as "Mixed Case", "select" from "Odd Name" order by "Some Column"

select o."Some Column" from "Odd Name" as o where o."select" = 'one'

select public.regions.name from public.regions order by 1

select regions.* from regions order by id

select at, note from logs where at >= date '2025-01-01'

select extract(year from at) as year, count(*) from logs group by year order by year

select sum(total), count(*) from paid

select p.id, o.status from paid p join orders o using (id) order by p.id limit 3

select mood, count(*) from customers group by mood order by mood

select name from customers where mood = 'ok' or mood > 'ok' order by 1

select count(*) from "Odd Name" tablesample bernoulli (100) repeatable (1)

select pg_size_pretty(1024::bigint) from orders order by id limit 1

select current_date >= date '2024-01-01', now() is not null, current_timestamp > timestamp '2024-01-01', localtimestamp is not null

select num_nulls(1, null), num_nonnulls(1, null), hashtext('a') is not null, quote_literal('a'), to_hex(255), gcd(4, 6)

select to_number('12,454.8', '99G999D9'), to_date('05 Dec 2000', 'DD Mon YYYY'), to_timestamp(0), to_char(1234.5, 'FM9,999.00')

select true and false, 'yes'::boolean, bool 'no', int '3', float8 '1.5', "char" 'a', '{1,2}'::int[], ('{1,2}'::int[])[2], array['a']::varchar[]

select id as position, name as value, 1 as year, 2 as time, 3 as date, 4 as rows from regions order by position

select t.year, t.value from (select 2024 as year, 5 as value) t

select count(*) -- a comment; with a semicolon
from orders /* and /* a nested */ one */;

SELECT Name AS N FROM Customers WHERE Region = 'north' ORDER BY 1

select array_position(array[5, 6], 6), array_remove(array[1, 2], 1), array_cat(array[1], array[2]), string_to_array('a,b', ','), unnest(array[1, 2]) order by 5

select x, y from rows from (generate_series(1, 3), generate_series(11, 12)) as g(x, y) order by x

select variance(x) from (values (1.0), (2), (3)) as v(x)

select sum(n) filter (where n % 2 = 0) over (order by n) from generate_series(1, 5) as g(n) order by n

select lag(id, 1, 0) over (order by id), lead(id) over (order by id) from regions order by id

select width_bucket(total, array[0, 100, 200, 300]), count(*) from orders group by 1 order by 1

select regexp_count(name, 'n') from customers where false and name is null

select count(*) from orders o, lateral (select o.total * 2 as double) d where d.double > 400

select json_object('{a,1,b,2}'), jsonb_pretty('{"a": 1}'), jsonb_typeof('[]'), json_extract_path_text('{"a": {"b": 1}}', 'a', 'b')

select * from unnest(array[1, 2], array['a', 'b']) as u(a, b) order by a

with ranked as (select o.*, rank() over (partition by customer_id order by total desc) as rnk from orders o)
select customer_id, id, total from ranked where rnk <= 3 order by customer_id, rnk

select status, (100.0 * count(*) / sum(count(*)) over ())::numeric(5, 1) as pct from orders group by status order by status

select value, key from (select 1 as value, 2 as key) t

select t.time, t.timestamp, t.date, t.interval from (select 1 as time, 2 as timestamp, 3 as date, 4 as interval) t

select count(*) count, max(total) max, min(id) as year from orders

select percentile_cont(array[0.25, 0.5, 0.75]) within group (order by total) from orders

select name, position('n' in name) as position, length(name) as length from customers order by name

select (x.c).name from (select customers as c from customers) x order by 1

select e.value ->> 'sku' as sku from orders o cross join lateral jsonb_array_elements(o.lines) with ordinality as e(value, n)
where n = 1 order by o.id limit 2

with recursive t(n, path) as (select 1, array[1] union all select n + 1, path || (n + 1) from t where n < 4)
select n, path from t order by n

select width_bucket(total, 0, 500, 5) b, repeat('#', count(*)::int) bar from orders group by b order by b

select id, sum(total) over (order by ordered_on range '30 days'::interval preceding) from orders order by id

select id, sum(total) over (order by ordered_on range interval '30 days' preceding) from orders order by id

select interval '1 day' x, timestamp '2024-01-01' - interval '2 weeks' cutoff, interval '2' day lasting, date '2024-01-01' y
