-- name: undescribed
-- description: The name of a query in a file before.
select name from customers
