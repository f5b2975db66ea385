-- name: slow_parcels
-- title: Slow parcels
-- description: Parcels of one carrier that took long, slowest first.
-- param carrier: text in (Alpenpost, Nordfracht, Parcelway, 'Cargo Cyclists')   The carrier.
-- param days: integer min 1 max 60 = 7   Minimum number of days in transit.
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
