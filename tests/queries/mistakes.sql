-- name: no_table
-- description: Of a table that is not there.
select id from custmers

-- name: no_column
-- description: Of a column that is not there.
select nam from customers

-- name: writes
-- description: More than a query may.
-- param id: integer
delete from customers where id = :id

-- name: undeclared
-- description: Of a parameter that is not declared.
select id from customers where id = :id

-- name: unused
-- description: Of a parameter that is not used.
-- param id: integer
select id from customers

-- name: unknown_key
-- descripton: Nearly a key.
select id from customers

-- name: bad_type
-- description: Of a type that is not there.
-- param id: int
select id from customers where id = :id

-- name: two_statements
-- description: One too many.
select id from customers; select 1

-- name: claim_in_clause
-- description: Of a claim that would come and go.
-- param id: integer?
select id from customers where true /*? and tenant = :claims.tenant and id = :id ?*/

-- name: other_columns
-- description: With other columns in one variant.
-- param id: integer?
select id /*? , cast(:id as integer) as given ?*/ from customers

-- name: twice_named
-- description: Two columns by one name.
select id, id from customers

-- name: list_customers
-- description: The name of a tool.
select id from customers

-- name: run_query
-- description: The name of another tool.
select id from customers

-- name: undescribed
select id from customers

-- name: nearly_a_claim
-- description: Of a claim that is not written as one.
select id from customers where tenant = :claim.tenant

-- name: within_quotes
-- description: Of a parameter that is a part of a text.
-- param word: text
select id from customers where name like '%:word%'

-- name: double_quotes
-- description: Of values that are quoted like names.
-- param country: text in (PT, "JP")?
-- param ids: integer[] = [1, 2]
-- param since: text in (new, old)?
select id from customers where country = :country

-- name: absent_list
-- description: Of a list that may be absent.
-- param ids: integer[]?
select id from customers where id not in (:ids)
