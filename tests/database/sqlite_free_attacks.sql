select * from {t}
select v from {t}
select count(*) from {t}
select 1 from {t}
select 1 where exists (select 1 from {t})
select (select v from {t} limit 1)
select (select count(*) from {t})
select * from orders, {t}
select * from orders join {t}
select * from orders cross join {t}
select * from orders left join {t} on 1
select * from {t} right join orders on 1
select * from orders full join {t} on 1
select * from orders natural join {t}
select * from orders natural left join {t}
select count(*) from (select 'CAN' || 'ARY' as v) join {t} using (v)
select v from (select 'x' as v) full join {t} using (v)
select v from (select 'x' as v) natural full join {t}
select * from orders join {t} using (id)
select * from orders join {t} using (total)
select 1 in {t}
select ('CAN' || 'ARY') in {t}
select id from orders where id in {t}
select id from orders where id not in {t}
select * from orders where id in (select id from {t})
select * from orders where (id, total) in {t}
select * from orders where (id, total) = (select 1, 2 from {t})
select id from orders order by (select v from {t})
select id from orders limit (select count(*) from {t})
select id from orders limit 1 offset (select count(*) from {t})
select count(*) from orders group by (select v from {t})
select count(*) from orders group by id having (select count(*) from {t}) > 0
with a as (select * from {t}) select * from a
with a as materialized (select v from {t}) select count(*) from a
with recursive a(v) as (select v from {t} union select v from a) select * from a
with recursive a(n) as (select 1 union all select n + 1 from a, {t} where n < 3) select * from a
with customers as (select * from {t}) select * from customers
with paid as (select v from {t}) select * from paid
select id from orders union select v from {t}
select id from orders union all select v from {t}
select v from {t} except select name from tags
select name from tags intersect select v from {t}
values ((select v from {t}))
select sum(total) over (order by (select v from {t})) from orders
select sum(total) filter (where exists (select 1 from {t})) from orders
select rank() over w from orders window w as (partition by (select v from {t}))
select case when exists (select 1 from {t}) then 1 end
select coalesce((select v from {t}), 1)
select json_group_array(v) from {t}
select * from json_each((select json_group_array(v) from {t}))
select * from (select * from (select * from {t}))
select * from (orders join {t} on 1)
select x.* from {t} as x
select {t}.v from {t}
select rowid from {t}
select * from {t} indexed by secrets_v
select * from {t} not indexed
select * from main.{t}
select * from temp.{t}
select * from {t}(1)
select * from orders o where exists (select 1 from {t} s where s.total = o.total)
select {t}.v from orders
select nothere from {t}
select nothere(1) from {t}
select * from {t}, nothere
select * from nothere, {t}
select {t} from {t}
select * from {t} where {t} match 'hello'
select snippet({t}, 0, '', '', '', 9) from {t}
/* a */ select /**/ * from/**/{t}/**/
select iif(1, 1, (select v from {t}))
select 1 and (select v from {t})
select likely(exists (select 1 from {t}))
select v collate nocase from {t}
select cast(v as blob) from {t}
select typeof(v), length(v), quote(v) from {t}
select max(v), min(v) from {t}

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
with a(x) as (select v from {t}) select 1

select {c} from customers
select customers.{c} from customers
select c.{c} from customers c
select temp.customers.{c} from customers
select max({c}) from customers
select count({c}) from customers
select count(distinct {c}) from customers
select id from customers where {c} = 1
select id from customers where {c} is null
select id from customers where {c} like 'C%'
select id from customers where {c} in (select 1)
select id from customers order by {c}
select id from customers order by {c} desc nulls last
select count(*) from customers group by {c}
select count(*) from customers group by 1 having max({c}) > 1
select id, row_number() over (order by {c}) from customers
select id, sum({c}) over () from customers
select sum(1) filter (where {c} is not null) from customers
select * from customers join orders on {c} = total
select * from customers join (select 1 as {c}) using ({c})
select count(*) from customers natural join (select 1 as {c})
select * from customers full join (select 1 as {c}) using ({c})
select * from (select 1 as {c}) natural left join customers
with a as (select {c} from customers) select * from a
select (select {c} from customers limit 1)
select * from orders where exists (select {c} from customers)
select (select {c}) from customers
select json_object('a', {c}) from customers
select case {c} when 1 then 1 end from customers
select {c} from customers union select 1
select * from (select {c} from customers)
select (id, {c}) = (1, 2) from customers
select group_concat({c}) from customers
select {c} || '' from customers
select id as {c} from customers order by {c}
select (select max({c}) from orders) from customers
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

insert into {t} select 1
insert into {t} values (1)
insert into {t} default values
insert into {t}(v) values (1) returning v
insert or ignore into {t} select 1
insert into {t} select 1 where 1 on conflict do nothing
insert into orders select * from {t}
replace into {t} select 1
update {t} set v = 1
update {t} set nothere = 1
update or ignore {t} set v = 1 from orders
update orders set total = (select v from {t})
update orders set total = 1 from {t}
delete from {t}
delete from {t} where nothere
delete from orders where id in {t}
select * from {t}
select 1 from {t} indexed by {t}
select 1 from orders indexed by {t}
values ((select 1 from {t}))
explain select * from {t}
create table {t} (v)
create index a on {t} (v)
create view a as select * from {t}
create trigger a after insert on {t} begin select 1; end
drop table {t}
drop table if exists {t}
drop index {t}
drop trigger {t}
alter table {t} rename to a
pragma table_info({t})
analyze {t}
reindex {t}

select {t}
select {t} as a, {t}
select length({t}), {t} || 'a'
select * from {t}
select * from {t} as a
select * from ({t})
select * from (({t}))
select * from (a, {t})
select * from a, {t}
select * from a cross join {t}
select * from a natural join {t} b
select * from a left join {t} on 1
select * from a join b on a.v = b.v, {t}
select * from a join b on a.v in (1, 2), {t}
select * from a join b using (v), {t}
select * from a window, {t}
select * from a as {t}
select * from a where v = {t}
select * from a where {t} = v
select * from a where v in ({t})
select * from a where v in ('a', {t})
select * from a where (v, v) in (values ({t}, 1), (2, {t}))
select * from a where v in {t}
select * from a where v not in main.{t}
select * from a where v is distinct from {t}
select * from a where v is not distinct from {t}
select v is distinct from {t}, {t} from a
select * from a where v like {t} escape {t}
select * from a where v between {t} and {t}
select * from (select {t})
select * from (select v, {t} from a)
select * from (values ({t}, {t}), ({t}, {t}))
select * from a, (values ({t}))
select * from json_each({t})
select * from a, json_each({t}, {t})
select * from a join json_each({t}) on 1
select * from (a join {t} on 1)
select * from a where exists (select 1 from {t})
select * from a group by {t}, {t} having {t}
select * from a order by {t}, {t}
select * from a limit {t}, {t}
select v from a union select {t}
select 1 from a intersect select 1 from {t}
select v from a except values ({t}), ({t})
select sum(v) over (partition by {t} order by {t}) from a
select sum(v) over w from a window w as (partition by {t}, {t})
select sum(v) filter (where v = {t}) from a
select case {t} when {t} then {t} else {t} end from a
select iif(v, {t}, {t}) from a, b
with c as (select {t}) select * from c
with c as (select * from {t}) select * from c
with c(d) as (values ({t})), e as (select {t}) select * from c, e, a
values ({t}), ({t})

select * from sqlite_master
select * from sqlite_schema
select * from sqlite_temp_master
select * from sqlite_sequence
select * from main.sqlite_master
select * from temp.sqlite_master
select * from "sqlite_master"
select * from 'sqlite_master'
select * from 'SQLITE_SCHEMA'
select * from 'sqlite_temp_schema'
select * from 'sqlite_stat1'
select count(*) from (select 'secrets' as name) join sqlite_master using (name)
select name from (select 'x' as name) natural full join sqlite_master
select 'secrets' in sqlite_master
select count(*) from 'sqlite_master'
with sqlite_master as (select 1 as a) select * from sqlite_master
select * from pragma_table_list
select * from pragma_database_list
select * from pragma_table_info('secrets')
select * from pragma_function_list
select * from pragma_compile_options
select * from 'pragma_table_list'
select * from 'pragma_table_xinfo'('customers')
select * from [pragma_index_list]('secrets')
select * from dbstat
select * from sqlite_dbpage
select * from bytecode('select 1')
select * from tables_used('select 1')
select * from generate_series(1, 3)
select * from fts3tokenize('simple', 'a')
select * from fts5vocab
select * from docs_data
select * from docs_idx
select * from docs_content
select * from docs_config
select block from docs_data union select 1
select count(*) from (select 1 as id) join docs_content using (id)
select load_extension('x')
select load_extension('x', 'y')
select fts3_tokenizer('simple')
select fts5(1)
select sqlite_offset(id) from orders
select sqlite_compileoption_get(1)
select randomblob(10)
select changes(), total_changes(), last_insert_rowid()
select sqlite_log(1, 'x')
select readfile('/etc/passwd')
select writefile('/tmp/free_sql', 'x')
select edit('x')
select rtreecheck('secrets')
select dbtools_unhex('00'), dbtools_contains('a', 'b')
select 'a' regexp 'b'
select optimize(docs) from docs
insert into docs(docs) values ('optimize')
insert into orders values (9, 1, 1, 1, 1, 1)
insert into secrets values (9)
replace into orders values (9)
update orders set total = 1
delete from orders
with a as (select 1) insert into orders select 9, 1, 1, 1, 1, 1
with a as (select 1) delete from orders
with a as (select 1) update orders set total = 1
create table t (a)
create temp table t (a)
create temp view orders as select 1
create trigger a after insert on orders begin select 1; end
create virtual table t using fts5(a)
drop table orders
drop view customers
alter table orders rename to o
reindex
analyze
vacuum
vacuum into '/tmp/free_sql.db'
attach '/tmp/free_sql.db' as a
attach ':memory:' as a
detach main
pragma table_info(secrets)
pragma query_only = off
pragma writable_schema = on
pragma hard_heap_limit = 1
pragma database_list
begin
commit
rollback
savepoint a
explain select * from orders
explain query plan select * from orders
query plan select * from orders
select 1; select 2
select 1; drop table orders
;select * from orders
;;
-- only a comment
/* open
select 'open
select 1 /* open
select * from orders where id = ?
select * from orders where id = ?1
select * from orders where region = :region
select @a, $b
select * from orders where id = :claims.region
(select 1)
select * from (insert into orders values (1) returning *)
select * from customers
select count(*), sum(amount), max(id), min(name) from customers
select total(amount) from customers
select * from customers where region = 'south'
select * from customers where 1 or region = 'south'
select * from customers where 1) or (1
select * from customers where id in (2, 4)
select rowid from customers
select _rowid_, oid from customers
select * from customers where rowid = 2
select abs(amount) from customers
select id from customers where abs(amount) > 0
select sum(abs(amount)) from customers
select id from customers order by abs(amount)
select id from customers group by abs(amount)
select json_extract(name, '$') from customers
select id from customers where json_extract(name, '$.a') is null
select id from customers where json_valid(name) or json(name)
select json(name) from customers where json_valid(name)
select * from customers, json_each(customers.name)
select c.id from customers c where exists (select 1 from json_each(c.name))
select case when amount < 0 then abs(amount) end from customers
select id from customers where case when region = 'south' then abs(-9223372036854775808) else 1 end
select id from customers where zeroblob(amount) is null
select id from customers where printf('%d', abs(amount)) = '1'
select max(abs(amount)) over () from customers
select * from orders o left join customers c on abs(c.amount) = o.id
select * from orders o join customers c on json_extract(c.name, '$') = o.id
select (select abs(amount) from customers where id = 2)
select exists (select 1 from customers where id = 2)
select id from orders where customer_id in (select id from customers)
select id from orders where customer_id not in (select id from customers)
select * from orders where abs((select amount from customers where id = 2)) is null
select count(*) from customers indexed by sqlite_autoindex_customers_1
select * from customers indexed by customers_name
select * from orders indexed by orders_status where status = 'paid'
select ntile(3) over (order by amount) from customers
select lag(name) over (order by id) from customers
select percent_rank() over (order by id) from customers
select group_concat(name) from customers
select * from gaps where id > 5
select max(id) from gaps
select max(id) - min(id) + 1 from gaps
select email, phone, remark from customers
select id from customers where email = 'ann@example.org'
select id from customers where email like 'an%'
select id from customers order by email
select count(distinct phone), count(remark) from customers
select id from customers where remark is not null
select length(email), hex(email), substr(email, 2, 3), unicode(substr(email, 2)) from customers
select email from customers group by email
select * from customers a join customers b using (email)
select typeof(email), typeof(remark), typeof(phone) from customers
select cast(email as blob) from customers
select id from customers where email glob 'a*' and abs(length(email))
select json_array(email, phone, remark) from customers
with secrets as (select 1 as v) select * from secrets
with ssn as (select 1) select * from ssn
select 1 as ssn
select id as ssn from customers
select secrets.id from orders as secrets
with v_secrets as (select v from secrets) select * from v_secrets
with paid as (select ssn from customers) select * from paid
with customers as (select ssn from main.customers) select * from customers
with recursive customers as (select * from customers) select * from customers
with orders as (select * from orders) select * from orders
select * from main.customers
select * from main.orders
select * from temp.orders
select "CAN" || "ARY"
select * from ordеrs
select * from 'orders'
select U&"s\0065crets"
select $$secrets$$
select * from x0_0
select * from orders y, orders y
select * from orders natural join tags join orders y join orders y using (id)
select y.* from orders y join docs y
select * from docs y, docs y where y.title = 'a'
select * from customers y, customers y
select * from paid y natural join paid y
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
select * from gaps where id = 424242
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
