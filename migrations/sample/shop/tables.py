"""The shape of each table's rows; field for field, in the order of its columns."""

from datetime import date, datetime
from decimal import Decimal
from typing import NamedTuple


class Json(NamedTuple):
    """A value for a JSON column, as its text."""

    text: str


class Supplier(NamedTuple):
    """A row of suppliers."""

    id: int
    name: str
    country: str
    contact_email: str | None
    lead_time_days: int


class Category(NamedTuple):
    """A row of categories."""

    id: int
    parent_id: int | None
    name: str
    description: str


class Employee(NamedTuple):
    """A row of employees."""

    id: int
    name: str
    email: str
    job_title: str
    manager_id: int | None
    hired_on: date
    left_on: date | None
    salary: Decimal
    full_time: bool


class Product(NamedTuple):
    """A row of products."""

    id: int
    category_id: int
    supplier_id: int
    sku: str
    name: str
    description: str
    price: Decimal
    cost: Decimal
    weight_grams: int | None
    stock: int
    discontinued: bool
    launched_on: date
    gtin: int
    tags: list[str]
    attributes: Json
    picture: bytes


class Customer(NamedTuple):
    """A row of customers."""

    id: int
    name: str
    email: str
    phone: str | None
    company: str | None
    country: str
    region: str
    account_manager_id: int | None
    newsletter: bool
    born_on: date | None
    notes: str | None
    created_at: datetime


class Address(NamedTuple):
    """A row of addresses."""

    id: int
    customer_id: int
    label: str
    recipient: str
    street: str
    postal_code: str
    city: str
    country: str


class Order(NamedTuple):
    """A row of orders."""

    id: int
    customer_id: int
    billing_address_id: int
    shipping_address_id: int
    handled_by_id: int | None
    status: str
    channel: str
    payment_method: str
    ordered_on: date
    paid_at: datetime | None
    shipping_fee: Decimal
    total: Decimal
    margin: Decimal
    gift_message: str | None


class OrderLine(NamedTuple):
    """A row of order_lines."""

    order_id: int
    line_number: int
    product_id: int
    quantity: int
    unit_price: Decimal
    discount: Decimal
    amount: Decimal


class Shipment(NamedTuple):
    """A row of shipments, without the column that the database computes."""

    id: int
    order_id: int
    carrier: str
    tracking_number: int
    weight_kg: float | None
    shipped_on: date
    delivered_on: date | None


class StockMovement(NamedTuple):
    """A row of stock_movements."""

    moved_at: datetime
    product_id: int
    quantity: int
    reason: str
    order_id: int | None
    note: str | None


class Guide(NamedTuple):
    """A row of guides."""

    id: int
    category_id: int
    author_id: int
    title: str
    body: str
    published_on: date


class ProductSearch(NamedTuple):
    """A row of product_search, without the column that the database computes."""

    product_id: int
    name: str
    description: str


class ProductReview(NamedTuple):
    """A row of product_reviews."""

    id: int
    product_id: int
    customer_id: int
    rating: int
    title: str
    body: str | None
    helpful_votes: int
    written_at: datetime


class RegisteredQuery(NamedTuple):
    """A row of dbtools_query."""

    name: str
    version: int
    text: str
    enabled: bool
    changed_at: datetime
