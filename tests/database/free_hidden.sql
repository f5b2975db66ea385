-- What the role does not see.
alter table customers add column ssn text default 'CANARY-ssn';
alter table orders add column margin integer default 424242;
alter table regions add column budget integer default 424242;
insert into customers values
    (2, 'CANARY Bob', 'south', 'canary@canary.example', '424242', 'sad', '1942-04-24', '{CANARY}', '{"CANARY": 424242}'),
    (4, '424242', 'CANARY', 'x@y.zz', 'CANARY', 'sad', '1942-01-01', '{424242}', '{"x": "CANARY"}');
create table secrets (id integer primary key, v text, name text, n integer);
insert into secrets values (1, 'CANARY', 'CANARY', 424242);
create schema vault;
create table vault.keys (id integer, v text);
insert into vault.keys values (1, 'CANARY');
create table vault.customers (id integer, v text);
insert into vault.customers values (1, 'CANARY');
create view peek as select * from secrets;
create materialized view kept as select * from secrets;
create function leak() returns text language sql stable as 'select v from secrets';
create function leak_immutable() returns text language sql immutable as 'select v from secrets';
create function leak_definer() returns text language sql immutable security definer as 'select v from secrets';
create function leak_of(text) returns text language sql stable as 'select v from secrets';
create function leak_rows() returns setof secrets language sql stable as 'select * from secrets';
create function of_row(regions) returns text language sql stable as 'select v from secrets';
create function of_odd("Odd Name") returns text language sql stable as 'select v from secrets';
create function of_any(anyelement) returns text language sql stable as 'select v from secrets';
create function upper(integer) returns text language sql stable as 'select v from secrets';
create function leak_agg(text, text) returns text language sql stable as 'select v from secrets';
create aggregate leaking (text) (sfunc = leak_agg, stype = text);
create function is_leak(text, text) returns boolean language sql stable
    as 'select exists (select from secrets where v = $2)';
create operator === (function = is_leak, leftarg = text, rightarg = text);
create function checks(text) returns boolean language sql stable
    as 'select not exists (select from secrets where v = $1)';
create domain guess as text check (checks(value));
create type pair as (v text, n integer);
create function to_pair(text) returns pair language sql stable as 'select v, n from secrets limit 1';
create cast (text as pair) with function to_pair(text);
create type secret_mood as enum ('CANARY');
create sequence counter;
create collation shady from "C";
