-- What the role sees. The twin has nothing else.
create type mood as enum ('sad', 'ok', 'happy');
create table regions (id integer primary key, name text not null);
insert into regions values (1, 'north'), (2, 'south');
create table customers (
    id integer primary key, name text not null, region text not null, email text, phone text, mood mood,
    born date, tags text[], profile jsonb
);
insert into customers values
    (1, 'Ann', 'north', 'ann@example.org', '111', 'ok', '1990-05-01', '{a,b}', '{"vip": true, "n": [1, 2]}'),
    (3, 'Cid', 'north', null, '333', 'happy', '1985-11-30', '{}', '{"vip": false}'),
    (5, 'Eve', 'north', 'not an address', null, null, null, null, null);
create table orders (
    id integer primary key, customer_id integer, total numeric(12, 2) not null, ordered_on date not null,
    placed timestamptz not null, status text not null, lines jsonb, boss_id integer
);
insert into orders select g, (array[1, 3, 5])[1 + g % 3], g * 10.25, date '2024-01-01' + g * 5,
    timestamptz '2024-01-01 08:00+00' + g * interval '31 hours', (array['new', 'paid', 'sent'])[1 + g % 3],
    jsonb_build_array(jsonb_build_object('sku', 'a' || g, 'n', g % 4), jsonb_build_object('sku', 'b', 'n', 1)),
    nullif(g / 2, 0)
from generate_series(1, 40) as g;
create table logs (at date not null, id integer not null, note text) partition by range (at);
create table logs_2024 partition of logs for values from ('2024-01-01') to ('2025-01-01');
create table logs_2025 partition of logs for values from ('2025-01-01') to ('2026-01-01');
insert into logs values ('2024-03-01', 1, 'x'), ('2025-03-01', 2, 'y');
create view paid as select id, total from orders where status = 'paid';
create table "Odd Name" ("Some Column" integer, "select" text);
insert into "Odd Name" values (1, 'one'), (2, 'two');
