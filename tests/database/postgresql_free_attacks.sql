select ssn from customers
select customers.ssn from customers
select c.ssn from customers c
select "ssn" from customers
select (c).ssn from customers c
select (customers).ssn from customers
select (select ssn)
select count(ssn) from customers
select id from customers where ssn = 'CANARY-ssn'
select id from customers order by ssn
select id from customers group by id, ssn
select * from customers join (select 'CANARY-ssn' as ssn) x using (ssn)
select * from customers natural join (select 'CANARY-ssn' as ssn) x
select ssn from customers full join (select 'x' as ssn) x using (ssn)
select x.ssn from customers x(a, b, c, d, e, f, g, h, i, ssn)
select margin from orders
select o.margin from orders o
select sum(margin) from orders
select budget from regions
select (regions.*).budget from regions
select row_to_json(regions) ->> 'budget' from regions
select to_jsonb(o) -> 'margin' from orders o limit 1
select to_jsonb(c) ->> 'ssn' from customers c
select c::text from customers c
select json_agg(c) from customers c
select phone, email from customers where phone like '4%'
select id from customers where email like 'canary%'
select public.customers.ssn from public.customers
select * from customers where region = 'CANARY' or true
select * from customers where id = 2
select id from customers where name::int > 0
select 1 / (id - 2) from customers
select id from customers where 1 / (id - 2) > 0
select id from customers where case when id = 2 then 1 / 0 end is null
select id from customers where name ~ '^CANARY' and 1 / (length(name) - 10) > 0
select id from customers where (profile ->> 'CANARY')::int > 0
select id from customers where cast(tags[1] as int) = 424242
select max(born) from customers where born < date '1950-01-01'
select count(*) from customers c1, customers c2 where c1.id <> c2.id
select ctid from orders
select orders.ctid from orders
select o."ctid" from orders o
select tableoid from customers
select tableoid::regclass from logs
select xmin, xmax, cmin, cmax from regions
select "xmin" from regions
select max(xmin::text::bigint) from orders
select * from customers for update
select * from customers for share of customers
select * from orders for no key update skip locked
select * into stolen from customers
create table stolen as select 1
insert into customers values (9)
update orders set total = 0
delete from orders
truncate orders
drop table orders
merge into orders using regions r on true when matched then do nothing
with x as (delete from orders returning *) select * from x
with x as (insert into regions values (9, 'x') returning *) select * from x
with x as (update orders set total = 1 returning *) select * from x
select 1; drop table orders
select 1; select v from secrets
select 1;; select 2
begin
commit
rollback; select v from secrets
commit; begin read write
set role postgres
set transaction read write
reset all
show all
listen x
notify x
prepare p as select 1
execute p
deallocate all
declare c cursor for select 1
fetch all from c
copy customers to stdout
copy (select v from secrets) to program 'cat'
do $$ begin perform 1; end $$
call x()
explain select * from secrets
explain analyze select 1
lock table orders
vacuum
analyze orders
checkpoint
discard all
load 'x'
select 'secrets'::regclass
select 'secrets'::pg_catalog.regclass
select cast('secrets' as regclass)
select regclass 'secrets'
select "regclass" 'secrets'
select pg_catalog.regclass 'secrets'
select regclass('secrets')
select 'secrets'::text::regclass
select ('secrets')::"regclass"
select array['secrets']::regclass[]
select '{secrets}'::regclass[]
select '{secrets}'::_regclass
select 1259::regclass
select 1::oid::regclass::text
select 'leak()'::regprocedure
select 'leak'::regproc
select 'secret_mood'::regtype
select 'dbtools'::regrole
select 'vault'::regnamespace
select 'CANARY'::secret_mood
select enum_range(null::secret_mood)
select 'x'::guess
select cast('CANARY' as guess)
select guess 'CANARY'
select guess('CANARY')
select 'CANARY'::public.guess
select ('x'::pair).v
select cast('x'::text as pair)
select pair('x'::text)
select (null::secrets).v
select null::secrets
select jsonb_populate_record(null::secrets, '{"v": "x"}')
select * from json_to_record('{"a": "secrets"}') as x(a regclass)
select * from json_to_recordset('[{"a": "CANARY"}]') as x(a guess)
select * from json_to_recordset('[{"a": "secrets"}]') as x(a pg_catalog.regclass)
select leak()
select public.leak()
select "leak"()
select "public" . "leak" ( )
select LEAK()
select leak /* x */ ()
select l.* from leak() l
select * from leak_rows()
select * from public.leak_rows() as x
select * from rows from (leak_rows()) as x
select * from customers c, lateral leak_rows() r
select (leak_rows()).v
select leak_immutable()
select leak_definer()
select leak_of('x')
select leak_of(name) from customers
select leaking(name) from customers
select leaking(name) over () from customers
select leak_agg('a', 'b')
select of_row(r) from regions r
select r.of_row from regions r
select regions.of_row from regions
select (r).of_row from regions r
select (regions.*).of_row from regions
select of_odd(o) from "Odd Name" o
select o.of_odd from "Odd Name" o
select "Odd Name".of_odd from "Odd Name"
select (o).of_odd from "Odd Name" o
select ("Odd Name".*).of_odd from "Odd Name"
select x.of_odd from (select o from "Odd Name" o) x
select (x.o).of_odd from (select o from "Odd Name" o) x
select o.of_odd from "Odd Name" o, (select 1 as of_odd) p
select of_any(1)
select r.of_any from regions r
select x.of_any from (select 1) x
select (x).of_any from (select 1) x
select (row(1)).of_any
select c.of_any from customers c
select upper(1)
select public.upper(1)
select 'a' === 'CANARY'
select 'a' operator(public.===) 'CANARY'
select 'a' operator(===) 'CANARY'
select name from customers order by name using ===
select is_leak('a', 'CANARY')
select name collate shady from customers
select name collate "public"."shady" from customers
select current_user
select session_user, user, current_role, current_catalog, current_schema
select current_user()
select "current_user"()
select current_setting('app.secret')
select pg_catalog.current_setting('search_path')
select "pg_catalog"."current_setting"('search_path')
select set_config('role', 'none', true)
select set_config('search_path', 'vault', false)
select set_config('transaction_read_only', 'off', true), (select count(*) from customers)
select query_to_xml('select v from secrets', true, false, '')
select table_to_xml('secrets', true, false, '')
select schema_to_xml('public', true, false, '')
select database_to_xml(true, false, '')
select cursor_to_xml('c', 1, true, false, '')
select xpath('/x', query_to_xml('select v from secrets', true, false, ''))
select * from xmltable('/x' passing query_to_xml('select v from secrets', true, false, '') columns v text)
select ts_stat('select v from secrets')
select * from ts_stat('select to_tsvector(v) from secrets')
select ts_rewrite('a'::tsquery, 'select v::tsquery, v::tsquery from secrets')
select ts_debug('english', 'x')
select ts_parse('default', 'x')
select pg_read_file('/etc/passwd')
select * from pg_read_file('/etc/passwd')
select pg_ls_dir('.')
select * from pg_ls_dir('.') d
select pg_stat_file('base')
select pg_read_binary_file('PG_VERSION')
select lo_import('/etc/passwd')
select lo_create(0)
select lo_from_bytea(0, 'x')
select lo_get(1)
select loread(1, 1)
select pg_sleep(5)
select pg_sleep(5) from customers
select id from customers where pg_sleep(5) is null
select pg_advisory_lock(1)
select pg_try_advisory_lock(1)
select pg_advisory_xact_lock(1)
select pg_notify('x', 'y')
select pg_cancel_backend(1)
select pg_terminate_backend(1)
select pg_backend_pid()
select pg_reload_conf()
select pg_rotate_logfile()
select pg_export_snapshot()
select pg_logical_emit_message(false, 'a', 'b')
select pg_current_wal_lsn()
select pg_switch_wal()
select pg_create_restore_point('x')
select pg_relation_size('secrets')
select pg_total_relation_size('customers')
select pg_column_size(c) from customers c
select c.pg_column_size from customers c
select pg_get_viewdef('peek')
select pg_get_functiondef(1)
select pg_get_constraintdef(1)
select pg_describe_object(1, 2, 3)
select pg_stat_get_live_tuples(1)
select pg_stat_get_activity(null)
select * from pg_stat_get_activity(null)
select pg_show_all_settings()
select pg_my_temp_schema()
select pg_is_in_recovery()
select pg_postmaster_start_time()
select pg_database_size('postgres')
select pg_input_is_valid('secrets', 'regclass')
select * from pg_input_error_info('secrets', 'regclass')
select pg_get_keywords()
select pg_timezone_names()
select to_regclass('secrets')
select to_regtype('secret_mood')
select to_regproc('leak')
select has_table_privilege('secrets', 'select')
select has_schema_privilege('vault', 'usage')
select row_security_active('secrets')
select obj_description(1, 'pg_class')
select col_description(1, 1)
select format_type(1, 2)
select satisfies_hash_partition(1, 2, 3)
select inet_server_addr(), inet_client_addr()
select version()
select current_database()
select current_schemas(true)
select txid_current()
select pg_current_xact_id()
select nextval('counter')
select currval('counter')
select setval('counter', 5)
select lastval()
select dblink('dbname=postgres', 'select 1')
select * from dblink('', 'select v from secrets') as t(v text)
select crosstab('select v from secrets')
select clock_timestamp()
select timeofday()
select setseed(0.5)
select regclassin('secrets')
select textin('x')
select record_out(c) from customers c
select c.record_out from customers c
select byteaout('x')
select enum_in('ok', 1)
select json_populate_record(null::customers, '{}')
select * from customers c where c = c and c.ssn is not null
select U&"s\0065crets" from customers
select * from U&"s\0065crets"
select * from U&"\0073ecrets" uescape '\'
select U&'\0063' from customers
select * from "secrets"
select * from "SECRETS"
select * from SeCrEtS
select * from/**/secrets
select * from /* x */ public . secrets
select * from public."secrets" where $$a$$ = 'a'
select $x$ $x$, v from secrets
select 'a''b', v from secrets
select E'\'', v from secrets --'
select '\', v from secrets --'
select "a""b" from secrets
select 1 --
from secrets
select 1 /* /* */ from customers */ from secrets
select 1 from customers where '--' = '' or exists (select 1 from secrets)
select $1
select :x
select * from customers where id = ?
select @@version
select 1 where 1 in secrets
select in_range(1, 2, 3, true, true) from secrets
select * from customers, secrets as customers2
select * from customers as secrets, secrets as s
with secrets as (select 1) select * from public.secrets
with secrets as (select 1 as v) select v from secrets union select v from vault.keys
with a as (select * from b), b as (select 1) select * from a, secrets
with secrets as (select * from secrets) select * from secrets
with recursive secrets as (select * from secrets) select * from secrets
select * from (with secrets as (select 1) select 1) x, secrets
with regions as (select 1 as id), o as (select * from customers) select * from o
with regions as (select 1 where false) select count(*) from customers
with regions(id) as (values (1), (2)) select name from customers
with "public.regions" as (select 1) select * from customers
with t as (select 1) select region, t.region from customers t
select (with secrets as (select 1 as v) select v from secrets) from secrets
select * from customers where region in ('south', 'CANARY')
select region from customers union select region from customers where true
select * from json_table('[1]', '$[*]' columns (x regclass path '$'))
select json_value('{"a": "secrets"}', '$.a' returning regclass)
select xmlelement(name x, (select v from secrets limit 1))
select xmlparse(document '<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]><x>&e;</x>')
select '<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]><x>&e;</x>'::xml
select treat(1 as regclass)
select cast(1 as regclass) :: text
select not null :: regclass
select 1 as regclass, 'x' regclass
select format('%I', 'secrets')::regclass
select convert_from(lo_get(1), 'utf8')
select * from pg_catalog.generate_series(1, 2), secrets
select customers.secrets from customers
select secrets.* from customers
select vault.customers.v from customers
select vault.customers.v from public.customers
select * from customers window w as (order by (select v from secrets))
select * from customers order by name using operator(public.===)
select count(*) over (order by id range between (select count(*) from secrets) preceding and current row) from customers
select grouping((select v from secrets)) from customers group by 1
select all v from secrets
select distinct v from secrets
select any (select v from secrets)
select 1 = some (select n from secrets)
select exists (table secrets)
select (((((select v from secrets)))))
select array_agg(v) from secrets group by ()
select * from ((secrets))
select * from (customers cross join secrets)
select * from (select 1) x (y), (secrets) z
select * from customers join (secrets join regions on true) on true
select tableoid from (select * from customers) c
select oid from customers
select c.oid from customers c
select "oid" from orders
select filter(1)
select * from filter(1)
select 1 where not filter(1) is null
select public.filter(1)
select "filter"(1)
select (1) filter (2)
select 1 + filter(1), filter (1)
select cube(1)
select * from cube(1)
select 1 where not cube(1) is null
select public.cube(1)
select "cube"(1)
select (1) cube (2)
select 1 + cube(1), cube (1)
select rollup(1)
select * from rollup(1)
select 1 where not rollup(1) is null
select public.rollup(1)
select "rollup"(1)
select (1) rollup (2)
select 1 + rollup(1), rollup (1)
select overlaps(1)
select * from overlaps(1)
select 1 where not overlaps(1) is null
select public.overlaps(1)
select "overlaps"(1)
select (1) overlaps (2)
select 1 + overlaps(1), overlaps (1)
select double(1)
select * from double(1)
select 1 where not double(1) is null
select public.double(1)
select "double"(1)
select (1) double (2)
select 1 + double(1), double (1)
select materialized(1)
select * from materialized(1)
select 1 where not materialized(1) is null
select public.materialized(1)
select "materialized"(1)
select (1) materialized (2)
select 1 + materialized(1), materialized (1)
select unknown(1)
select * from unknown(1)
select 1 where not unknown(1) is null
select public.unknown(1)
select "unknown"(1)
select (1) unknown (2)
select 1 + unknown(1), unknown (1)
select like(1)
select * from like(1)
select 1 where not like(1) is null
select public.like(1)
select "like"(1)
select (1) like (2)
select 1 + like(1), like (1)
select ilike(1)
select * from ilike(1)
select 1 where not ilike(1) is null
select public.ilike(1)
select "ilike"(1)
select (1) ilike (2)
select 1 + ilike(1), ilike (1)
select isnull(1)
select * from isnull(1)
select 1 where not isnull(1) is null
select public.isnull(1)
select "isnull"(1)
select (1) isnull (2)
select 1 + isnull(1), isnull (1)
select notnull(1)
select * from notnull(1)
select 1 where not notnull(1) is null
select public.notnull(1)
select "notnull"(1)
select (1) notnull (2)
select 1 + notnull(1), notnull (1)
select similar(1)
select * from similar(1)
select 1 where not similar(1) is null
select public.similar(1)
select "similar"(1)
select (1) similar (2)
select 1 + similar(1), similar (1)
select repeatable(1)
select * from repeatable(1)
select 1 where not repeatable(1) is null
select public.repeatable(1)
select "repeatable"(1)
select (1) repeatable (2)
select 1 + repeatable(1), repeatable (1)
select within(1)
select * from within(1)
select 1 where not within(1) is null
select public.within(1)
select "within"(1)
select (1) within (2)
select 1 + within(1), within (1)
select rows(1)
select * from rows(1)
select 1 where not rows(1) is null
select public.rows(1)
select "rows"(1)
select (1) rows (2)
select 1 + rows(1), rows (1)
select range(1)
select * from range(1)
select 1 where not range(1) is null
select public.range(1)
select "range"(1)
select (1) range (2)
select 1 + range(1), range (1)
select groups(1)
select * from groups(1)
select 1 where not groups(1) is null
select public.groups(1)
select "groups"(1)
select (1) groups (2)
select 1 + groups(1), groups (1)
select over(1)
select * from over(1)
select 1 where not over(1) is null
select public.over(1)
select "over"(1)
select (1) over (2)
select 1 + over(1), over (1)
select left(1)
select * from left(1)
select 1 where not left(1) is null
select public.left(1)
select "left"(1)
select (1) left (2)
select 1 + left(1), left (1)
select right(1)
select * from right(1)
select 1 where not right(1) is null
select public.right(1)
select "right"(1)
select (1) right (2)
select 1 + right(1), right (1)
select full(1)
select * from full(1)
select 1 where not full(1) is null
select public.full(1)
select "full"(1)
select (1) full (2)
select 1 + full(1), full (1)
select inner(1)
select * from inner(1)
select 1 where not inner(1) is null
select public.inner(1)
select "inner"(1)
select (1) inner (2)
select 1 + inner(1), inner (1)
select outer(1)
select * from outer(1)
select 1 where not outer(1) is null
select public.outer(1)
select "outer"(1)
select (1) outer (2)
select 1 + outer(1), outer (1)
select natural(1)
select * from natural(1)
select 1 where not natural(1) is null
select public.natural(1)
select "natural"(1)
select (1) natural (2)
select 1 + natural(1), natural (1)
select cross(1)
select * from cross(1)
select 1 where not cross(1) is null
select public.cross(1)
select "cross"(1)
select (1) cross (2)
select 1 + cross(1), cross (1)
select tablesample(1)
select * from tablesample(1)
select 1 where not tablesample(1) is null
select public.tablesample(1)
select "tablesample"(1)
select (1) tablesample (2)
select 1 + tablesample(1), tablesample (1)
select sets(1)
select * from sets(1)
select 1 where not sets(1) is null
select public.sets(1)
select "sets"(1)
select (1) sets (2)
select 1 + sets(1), sets (1)
select substring(1)
select * from substring(1)
select 1 where not substring(1) is null
select public.substring(1)
select "substring"(1)
select (1) substring (2)
select 1 + substring(1), substring (1)
select overlay(1)
select * from overlay(1)
select 1 where not overlay(1) is null
select public.overlay(1)
select "overlay"(1)
select (1) overlay (2)
select 1 + overlay(1), overlay (1)
select position(1)
select * from position(1)
select 1 where not position(1) is null
select public.position(1)
select "position"(1)
select (1) position (2)
select 1 + position(1), position (1)
select trim(1)
select * from trim(1)
select 1 where not trim(1) is null
select public.trim(1)
select "trim"(1)
select (1) trim (2)
select 1 + trim(1), trim (1)
select extract(1)
select * from extract(1)
select 1 where not extract(1) is null
select public.extract(1)
select "extract"(1)
select (1) extract (2)
select 1 + extract(1), extract (1)
select coalesce(1)
select * from coalesce(1)
select 1 where not coalesce(1) is null
select public.coalesce(1)
select "coalesce"(1)
select (1) coalesce (2)
select 1 + coalesce(1), coalesce (1)
select first(1)
select * from first(1)
select 1 where not first(1) is null
select public.first(1)
select "first"(1)
select (1) first (2)
select 1 + first(1), first (1)
select last(1)
select * from last(1)
select 1 where not last(1) is null
select public.last(1)
select "last"(1)
select (1) last (2)
select 1 + last(1), last (1)
select next(1)
select * from next(1)
select 1 where not next(1) is null
select public.next(1)
select "next"(1)
select (1) next (2)
select 1 + next(1), next (1)
select partition(1)
select * from partition(1)
select 1 where not partition(1) is null
select public.partition(1)
select "partition"(1)
select (1) partition (2)
select 1 + partition(1), partition (1)
select recursive(1)
select * from recursive(1)
select 1 where not recursive(1) is null
select public.recursive(1)
select "recursive"(1)
select (1) recursive (2)
select 1 + recursive(1), recursive (1)
select time(1)
select * from time(1)
select 1 where not time(1) is null
select public.time(1)
select "time"(1)
select (1) time (2)
select 1 + time(1), time (1)
select zone(1)
select * from zone(1)
select 1 where not zone(1) is null
select public.zone(1)
select "zone"(1)
select (1) zone (2)
select 1 + zone(1), zone (1)
select by(1)
select * from by(1)
select 1 where not by(1) is null
select public.by(1)
select "by"(1)
select (1) by (2)
select 1 + by(1), by (1)
select escape(1)
select * from escape(1)
select 1 where not escape(1) is null
select public.escape(1)
select "escape"(1)
select (1) escape (2)
select 1 + escape(1), escape (1)
select no(1)
select * from no(1)
select 1 where not no(1) is null
select public.no(1)
select "no"(1)
select (1) no (2)
select 1 + no(1), no (1)
select ties(1)
select * from ties(1)
select 1 where not ties(1) is null
select public.ties(1)
select "ties"(1)
select (1) ties (2)
select 1 + ties(1), ties (1)
select exclude(1)
select * from exclude(1)
select 1 where not exclude(1) is null
select public.exclude(1)
select "exclude"(1)
select (1) exclude (2)
select 1 + exclude(1), exclude (1)
select current(1)
select * from current(1)
select 1 where not current(1) is null
select public.current(1)
select "current"(1)
select (1) current (2)
select 1 + current(1), current (1)
select ordinality(1)
select * from ordinality(1)
select 1 where not ordinality(1) is null
select public.ordinality(1)
select "ordinality"(1)
select (1) ordinality (2)
select 1 + ordinality(1), ordinality (1)
select lower(1)
select * from lower(1)
select 1 where not lower(1) is null
select public.lower(1)
select "lower"(1)
select (1) lower (2)
select 1 + lower(1), lower (1)
select * from regions r, lateral customers c
select * from regions r, lateral only customers c
select * from only (customers)
select extract("leak"() from now())
select extract(leak() from now())
select extract(leak from now())
select make_interval(leak() => 1)
select 'x' like 'y' escape leak()
select ('secrets').regclass
select ('secrets'::text)."regclass"
select (16400).regclass
select (array['secrets'])[1].regclass
select ((array['secrets'])[1]).regclass
select (select 'secrets').regclass
select ('{secrets}')._regclass
select (x.y).regclass from (select 'secrets'::text as y) x
select (c.name).regclass from customers c
select ('CANARY').guess
select ('CANARY'::text).guess
select ('x').secret_mood
select ('(1,x,y,2)').secrets
select ('x'::text).leak_of
select (c.name).leak_of from customers c
select ('x').leak_of.length
select (1).of_any
select (1).upper
select ('counter').nextval
select ('app.secret').current_setting
select ('/etc/passwd').pg_read_file
select ('.').pg_ls_dir
select (5).pg_sleep
select (1).pg_advisory_lock
select (0).lo_create
select (1).pg_terminate_backend
select (null).pg_stat_get_activity
select ((null).pg_stat_get_activity).query
select g.regclass from unnest(array['secrets']) g
select g.leak_of from unnest(array['x']) g
select x.g.leak_of from unnest(array['x']) g
select unnest.regclass from unnest(array['secrets'])
select generate_series.pg_sleep from generate_series(5, 5)
select g.upper from generate_series(1, 2) g
select g.leak_of from lateral concat('x') g
select g.leak_of from rows from (concat('x')) g
select (customers.*).leak_of from customers
select id from customers c where (c.name).leak_of is null
select id from customers c order by (c.name).leak_of
select pg_typeof(1) = 'secret_mood'
select pg_typeof(1) in ('vault.keys', 'integer')
select coalesce(pg_typeof(1), 'vault.keys')
select array[pg_typeof(1), 'vault.keys']
select array_append(array[pg_typeof(1)], 16400)
select unnest(array_append(array[pg_typeof(1)], g)) as a from generate_series(16384, 17000) g
select case when true then g else pg_typeof(1) end from generate_series(16384, 17000) g
select lag(pg_typeof(1), 1, 'vault.keys') over ()
select pg_typeof(1) union select 'vault.keys'
values (pg_typeof(1)), ('vault.keys')
select pg_catalog.pg_typeof(1) = 'secrets'
select * from pg_typeof(1) as t union select 'secrets'
select (1).pg_typeof = 'secrets'
select c.pg_typeof = 'secrets' from customers c
select age('1'::xid)
select ('1').xid
select jsonb_populate_record(r, '{"id": "CANARY"}') from regions r
select (json_populate_record(o, '{"id": 424242}')).id from "Odd Name" o
select jsonb_populate_recordset(null::customers, '[]')
