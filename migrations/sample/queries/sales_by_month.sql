-- name: sales_by_month
-- title: Sales by month
-- description: Orders and revenue by month, without cancelled orders; optionally for one country or channel.
-- param since: date = 2025-01-01   First day to include.
-- param country: text?   Only customers of this country, by its English name.
-- param channel: text? in (web, phone, shop)   Only orders through this channel.
select
  substr(cast(orders.ordered_on as text), 1, 7) as month,
  count(*) as orders,
  round(sum(orders.total), 2) as revenue
from orders
join customers on customers.id = orders.customer_id
where orders.status <> 'cancelled'
and orders.ordered_on >= :since
/*? and customers.country = :country ?*/
/*? and orders.channel = :channel ?*/
group by substr(cast(orders.ordered_on as text), 1, 7)
order by month
