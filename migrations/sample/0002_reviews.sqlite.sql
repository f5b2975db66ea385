create table product_reviews ( -- What customers think of what they bought.
  id integer primary key,
  product_id integer not null references products (id),
  customer_id integer not null references customers (id),
  rating integer not null check (rating between 1 and 5), -- 5 is best
  title text not null,
  body text, -- Null if the customer gave only stars
  helpful_votes integer not null default 0 check (helpful_votes >= 0), -- How many readers found it helpful
  written_at datetime not null, -- UTC
  unique (product_id, customer_id)
);

create index product_reviews_customer_id on product_reviews (customer_id);

-- SQLite copies this text into that of the table: the comment must stand inside the definition.
alter table customers
add column loyalty_tier text -- From the total of all orders; null before the first
  check (loyalty_tier in ('bronze', 'silver', 'gold'));

update customers
set loyalty_tier = (
  select
    case
      when sum(total) >= 3000 then 'gold'
      when sum(total) >= 1200 then 'silver'
      when sum(total) > 0 then 'bronze'
    end
  from orders
  where orders.customer_id = customers.id
  and orders.status in ('paid', 'shipped')
);
