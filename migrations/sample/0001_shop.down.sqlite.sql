drop view staff;

drop view monthly_revenue;

drop table product_search;

drop table guides;

drop table stock_movements;

drop table shipments;

drop table order_lines;

drop table orders;

drop table addresses;

drop table customers;

drop table products;

drop table employees;

drop table categories;

drop table suppliers;
