create table suppliers ( -- Manufacturers and wholesalers that supply the shop.
  id integer primary key,
  name text not null unique,
  country text not null, -- Country that the goods ship from
  contact_email text, -- Orders go here; null when they are placed by telephone
  lead_time_days integer not null check (lead_time_days > 0) -- Days from order to delivery
);

create table categories ( -- Product categories, two levels deep.
  id integer primary key,
  parent_id integer references categories (id), -- Parent category; null at the top
  name text not null unique,
  description text not null
);

create table employees ( -- Everyone who works or has worked at the shop.
  id integer primary key,
  name text not null,
  email text not null unique,
  job_title text not null,
  manager_id integer references employees (id), -- Reports to; null for the managing director
  hired_on date not null,
  left_on date, -- Last day of work; null for those who are still here
  salary decimal(10,2) not null check (salary > 0), -- Gross annual salary, EUR
  full_time boolean not null default true
);

create table products ( -- Everything the shop sells or has sold.
  id integer primary key,
  category_id integer not null references categories (id),
  supplier_id integer not null references suppliers (id),
  sku text not null unique check (length(sku) = 7), -- Stock-keeping unit, for example TEN-001
  name text not null,
  description text not null,
  price decimal(10,2) not null check (price > 0), -- Current price, EUR, including VAT
  cost decimal(10,2) not null check (cost > 0), -- Purchase price of one piece, EUR
  weight_grams integer check (weight_grams > 0), -- Null if never weighed
  stock integer not null check (stock >= 0), -- Pieces on the shelf; 0 is out of stock
  discontinued boolean not null default false, -- No longer ordered from the supplier
  launched_on date not null,
  gtin bigint not null unique, -- Global trade item number, the 13 digits under the bar code
  tags json not null, -- Keywords, a JSON array of text
  attributes json not null, -- Facts that depend on the kind of product, a JSON object
  picture blob not null -- Icon for lists, PNG
);

create index products_category_id on products (category_id);

create index products_supplier_id on products (supplier_id);

create table customers ( -- People, companies and clubs that have an account.
  id integer primary key,
  name text not null,
  email text not null unique,
  phone text,
  company text, -- Company or club; null for private customers
  country text not null, -- Country of residence, in English
  region text not null -- Sales region
    check (region in ('central', 'north', 'west', 'south', 'overseas')),
  account_manager_id integer references employees (id), -- Looks after companies; null for others
  newsletter boolean not null default false, -- Receives the newsletter
  born_on date, -- Date of birth, if given
  notes text, -- Notes of the staff, not for the customer
  created_at datetime not null -- When the account was opened, UTC
);

create index customers_country on customers (country);

create table addresses ( -- Where to send parcels and bills.
  id integer primary key,
  customer_id integer not null references customers (id),
  label text not null check (label in ('home', 'office', 'work', 'holiday', 'family', 'pickup')),
  recipient text not null, -- Name on the parcel
  street text not null,
  postal_code text not null,
  city text not null,
  country text not null -- Not always the country of the customer
);

create index addresses_customer_id on addresses (customer_id);

create table orders ( -- What customers have ordered, one row for each order.
  id integer primary key,
  customer_id integer not null references customers (id),
  billing_address_id integer not null references addresses (id), -- Where the bill goes
  shipping_address_id integer not null references addresses (id), -- Where the parcel goes
  handled_by_id integer references employees (id), -- Who took the order; null on the web
  status text not null default 'new' -- Cancelled orders do not count as revenue
    check (status in ('new', 'paid', 'shipped', 'returned', 'cancelled')),
  channel text not null check (channel in ('web', 'phone', 'shop')),
  payment_method text not null check (payment_method in ('card', 'paypal', 'transfer', 'invoice')),
  ordered_on date not null,
  paid_at datetime, -- UTC; null until the money is there
  shipping_fee decimal(10,2) not null default 0 check (shipping_fee >= 0), -- EUR; free from 150 EUR
  total decimal(10,2) not null check (total > 0), -- Amounts of all lines and the shipping fee, EUR
  margin decimal(10,2) not null, -- Amounts of all lines less the cost of the goods, EUR
  gift_message text -- Printed on a card in the parcel
);

create index orders_customer_id on orders (customer_id);

create index orders_ordered_on on orders (ordered_on);

create table order_lines ( -- The products of an order.
  order_id integer not null references orders (id) on delete cascade,
  line_number integer not null check (line_number >= 1), -- Starts at 1 in each order
  product_id integer not null references products (id),
  quantity integer not null check (quantity > 0),
  unit_price decimal(10,2) not null check (unit_price > 0), -- Price at the time of the order, EUR
  discount decimal(3,2) not null default 0 check (discount between 0 and 0.5), -- 0.20 is 20 percent
  amount decimal(10,2) not null, -- quantity * unit_price * (1 - discount), rounded, EUR
  primary key (order_id, line_number)
) without rowid;

create index order_lines_product_id on order_lines (product_id);

create table shipments ( -- Parcels; a heavy order is split into two.
  id integer primary key,
  order_id integer not null references orders (id),
  carrier text not null
    check (carrier in ('Alpenpost', 'Nordfracht', 'Parcelway', 'Cargo Cyclists')),
  tracking_number bigint not null unique, -- Serial shipping container code, 18 digits
  weight_kg real, -- Null if not weighed
  shipped_on date not null,
  delivered_on date, -- Null while in transit, and for lost parcels
  transit_days integer -- Days in transit
    generated always as (cast(julianday(delivered_on) - julianday(shipped_on) as integer)) virtual,
  check (delivered_on >= shipped_on)
);

create index shipments_order_id on shipments (order_id);

create table stock_movements ( -- The log of the warehouse: what came in and what went out.
  moved_at datetime not null, -- UTC
  product_id integer not null references products (id),
  quantity integer not null check (quantity <> 0), -- Positive: stock in; negative: stock out
  reason text not null check (reason in ('delivery', 'sale', 'return', 'correction')),
  order_id integer references orders (id), -- For sales and returns
  note text
);

create index stock_movements_product_id on stock_movements (product_id);

create table guides ( -- Articles of the magazine, in Markdown.
  id integer primary key,
  category_id integer not null references categories (id), -- Category that the article is about
  author_id integer not null references employees (id),
  title text not null unique,
  body text not null, -- Full text; some are long
  published_on date not null
);

create virtual table product_search -- Full-text index of names and descriptions of products.
using fts5(product_id unindexed, name, description, tokenize = 'porter unicode61');

create view monthly_revenue as -- Revenue by month and country, without cancelled orders.
select
  substr(orders.ordered_on, 1, 7) as month,
  customers.country as country,
  count(*) as orders,
  round(sum(orders.total), 2) as revenue
from orders
join customers on customers.id = orders.customer_id
where orders.status <> 'cancelled'
group by substr(orders.ordered_on, 1, 7), customers.country;

create view staff as -- Current employees, with the name of their manager.
select
  employees.id as id,
  employees.name as name,
  employees.job_title as job_title,
  managers.name as manager
from employees
left join employees as managers on managers.id = employees.manager_id
where employees.left_on is null;
