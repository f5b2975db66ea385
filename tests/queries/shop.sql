-- name: customers_of
-- description: Customers of a country.
-- param country: text  Two letters.
select id, name from customers where country = :country order by id

-- name: peek
-- description: What is paid for secrets.
select s.id, s.price, c.email from secrets s join customers c on c.id = s.customer_id order by s.id

-- name: emails
-- description: Addresses of all.
select email from customers order by id

-- name: mine
-- description: The customers of the caller's tenant.
select id, name from customers where tenant = :claims.tenant order by id

-- name: idle
select 1 as one
