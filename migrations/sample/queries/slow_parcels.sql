-- name: slow_parcels
-- title: Slow parcels
-- description: Parcels of one carrier that were under way for long, the slowest first.
-- param carrier: text in (Alpenpost, Nordfracht, Parcelway, 'Cargo Cyclists')   Who brought them.
-- param days: integer min 1 max 60 = 7   Days under way, at least.
-- max_rows: 50
select
  shipments.tracking_number,
  shipments.shipped_on,
  shipments.delivered_on,
  shipments.transit_days,
  customers.country
from shipments
join orders on orders.id = shipments.order_id
join customers on customers.id = orders.customer_id
where shipments.carrier = :carrier
and shipments.transit_days >= :days
order by shipments.transit_days desc, shipments.tracking_number
