-- name: product_ratings
-- title: Product ratings
-- description: Average stars and number of reviews of products.
-- param skus: text[]   Stock-keeping units, such as TEN-001.
select
  products.sku,
  products.name,
  count(product_reviews.id) as reviews,
  round(avg(product_reviews.rating), 2) as stars
from products
left join product_reviews on product_reviews.product_id = products.id
where products.sku in (:skus)
group by products.id, products.sku, products.name
order by stars desc nulls last, products.sku
