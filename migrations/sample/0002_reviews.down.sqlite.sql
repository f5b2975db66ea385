alter table customers
drop column loyalty_tier;

drop table product_reviews;
