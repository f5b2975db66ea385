-- name: order_status
-- title: Order status
-- description: Where an order stands: who ordered, for how much, and when its last parcel left and arrived.
-- param order_id: integer   Number of the order.
-- returns: one
select
  orders.id as order_id,
  orders.status,
  orders.ordered_on,
  orders.total,
  customers.name as customer,
  count(shipments.id) as parcels,
  max(shipments.shipped_on) as shipped_on,
  max(shipments.delivered_on) as delivered_on
from orders
join customers on customers.id = orders.customer_id
left join shipments on shipments.order_id = orders.id
where orders.id = :order_id
group by orders.id, orders.status, orders.ordered_on, orders.total, customers.name
