-- name: change_thing
-- description: Change a thing.
-- writes: 1
-- param id: integer  Which.
-- param v: text  Its new value.
update things set v = :v where id = :id
returning id, v
