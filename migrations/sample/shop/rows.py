"""The rows of the shop: nothing in, for each table its rows out, the same on every machine."""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, timedelta
from functools import cache
from itertools import count, product as pairs
from json import dumps
from pathlib import Path
from typing import NamedTuple

from migrations.sample.shop import sales
from migrations.sample.shop.catalogue import GROUPS, KINDS, SUPPLIERS, Kind
from migrations.sample.shop.chance import number, percent, pick, shuffled
from migrations.sample.shop.people import COUNTRIES, STAFF, Country
from migrations.sample.shop.pictures import Colour, picture
from migrations.sample.shop.products import ARTICLES, Article
from migrations.sample.shop.tables import (
    Address,
    Category,
    Customer,
    Employee,
    Guide,
    Json,
    Order,
    OrderLine,
    Product,
    ProductSearch,
    Shipment,
    StockMovement,
    Supplier,
)

Rows = Mapping[str, Sequence[NamedTuple]]

FIRST_KIND = 101
NEVER_ORDERED = 14
DISCONTINUED = {
    "Hobo Kiefer",
    "Cragsack 45",
    "Statica 10.5",
    "Wolkenbruch Kids",
    "LVS Echo 3",
    "Sonnensegel 21",
    "Kiebitz Junior",
}
LAUNCHED = {
    "Beaver WW": date(2025, 3, 3), "Kuppel Air": date(2024, 2, 12),
    "Glut Turbo": date(2023, 4, 17), "Akku Fels 20": date(2024, 9, 2),
    "Airbag-Rucksack Lift 30": date(2024, 11, 4), "Wolke 9 Winter": date(2023, 10, 9),
    "Merino 200 Zip": date(2023, 9, 18), "Lavvu 6": date(2025, 5, 19),
}  # fmt: skip
SUPPLIER_OF = {
    "TEN": 1, "BAG": 6, "MAT": 1, "STO": 2, "COO": 2, "PAC": 5, "BOO": 3, "POL": 10, "NAV": 14,
    "BOT": 8, "ROP": 7, "HAR": 10, "HEL": 10, "CAR": 7, "RAI": 4, "DOW": 6, "BAS": 11, "GLO": 12,
    "DRY": 8, "RAF": 13, "SNO": 10, "AVA": 10, "LAM": 9, "POW": 9,
}  # fmt: skip
COLOURS: tuple[Colour, ...] = (
    (38, 92, 66), (186, 84, 38), (58, 136, 176), (128, 84, 142),
    (222, 160, 32), (78, 92, 104), (168, 36, 58), (116, 134, 56),
)  # fmt: skip
NOTES = (
    "Prefers to be called in the evening.",
    "Collects orders in person at the shop.",
    "Allergic to wool: never send merino as a gift.",
    "Leads a youth group, asks for a group price every spring.",
    "Parcels to the neighbour on the ground floor, please.",
)
#: letters that Unicode does not take apart into a plain one and a mark
UNDECOMPOSED = str.maketrans("øłı", "oli")
TAGGED = ("vegan", "recycled", "rechargeable", "ventilated")


@cache
def shop() -> Rows:
    """Return the rows of every table of the first revision, in an order that keeps references."""
    visits = sales.visits()
    customers = list(_customers(visits))
    addresses = list(_addresses(customers))
    products = list(_products())
    bought = {visit.order_id: sales.lines(visit, products) for visit in visits}
    orders = list(_orders(visits, bought, addresses, products))
    movements = _movements(products, orders, bought)
    products = [_stocked(product, movements) for product in products]
    return {
        "suppliers": [Supplier(nth, *each) for nth, each in enumerate(SUPPLIERS, start=1)],
        "categories": list(_categories()),
        "employees": list(_employees()),
        "products": products,
        "customers": customers,
        "addresses": addresses,
        "orders": orders,
        "order_lines": [line for lines in bought.values() for line in lines],
        "shipments": list(_shipments(orders, visits, bought, products)),
        "stock_movements": movements,
        "guides": list(_guides()),
        "product_search": [
            ProductSearch(product.id, product.name, product.description) for product in products
        ],
    }


def _categories() -> Iterator[Category]:
    numbers = {group.name: nth for nth, group in enumerate(GROUPS, start=1)}
    for group in GROUPS:
        yield Category(numbers[group.name], None, group.name, group.description)
    for nth, kind in enumerate(KINDS, start=FIRST_KIND):
        yield Category(nth, numbers[kind.group], kind.name, kind.description)


def _employees() -> Iterator[Employee]:
    for nth, colleague in enumerate(STAFF, start=1):
        yield Employee(
            id=nth,
            name=colleague.name,
            email=f"{_mailbox(colleague.name)}@nordpfad.example",
            job_title=colleague.job_title,
            manager_id=colleague.manager_id,
            hired_on=date.fromisoformat(colleague.hired_on),
            left_on=date.fromisoformat(colleague.left_on) if colleague.left_on else None,
            salary=sales.money(colleague.salary * 100),
            full_time=colleague.full_time,
        )


def _mailbox(name: str) -> str:
    plain = name.lower().replace("ß", "ss").translate(UNDECOMPOSED)
    ascii_only = unicodedata.normalize("NFKD", plain).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z]+", ".", ascii_only.replace("'", ""))


def _products() -> Iterator[Product]:
    kinds = {kind.code: (nth, kind) for nth, kind in enumerate(KINDS, start=FIRST_KIND)}
    for nth, article in enumerate(ARTICLES, start=1):
        category_id, kind = kinds[article.code]
        yield _product(nth, category_id, kind, article)


def _product(product_id: int, category_id: int, kind: Kind, article: Article) -> Product:
    group = next(group for group in GROUPS if group.name == kind.group)
    price = int(article.price.partition(".")[0]) * 100 + (90 if "." in article.price else 0)
    return Product(
        id=product_id,
        category_id=category_id,
        supplier_id=SUPPLIER_OF[kind.code],
        sku=f"{kind.code}-{product_id:03}",
        name=article.name,
        description=f"{article.text}. {kind.quality}",
        price=sales.money(price),
        cost=sales.money(price * (44 + number("cost", product_id) % 18) // 100),
        weight_grams=article.weight,
        stock=0,
        discontinued=article.name in DISCONTINUED,
        launched_on=LAUNCHED.get(article.name) or _launched_on(product_id),
        gtin=sales.with_check_digit(20 * 10**10 + number("gtin", product_id) % 10**10),
        tags=[*kind.tags.split(), *(name for name in TAGGED if article.attributes.get(name))],
        attributes=Json(dumps(article.attributes, ensure_ascii=False)),
        picture=picture(group.icon, group.background, pick(COLOURS, "colour", product_id)),
    )


def _launched_on(product_id: int) -> date:
    return date(2015, 2, 2) + timedelta(weeks=number("launch", product_id) % 400)


def _stocked(product: Product, movements: Sequence[StockMovement]) -> Product:
    moved = (each.quantity for each in movements if each.product_id == product.id)
    return product._replace(stock=sum(moved))


def _customers(visits: Sequence[sales.Visit]) -> Iterator[Customer]:
    first_days: dict[int, date] = {}
    for visit in visits:
        first_days.setdefault(visit.customer_id, visit.day)
    for nth in range(NEVER_ORDERED):
        first_days[len(first_days) + 1] = date(2025, 9, 1) + timedelta(days=8 * nth)
    met: dict[str, Iterator[int]] = defaultdict(count)
    for customer_id, day in first_days.items():
        country = sales.country_of(customer_id)
        yield _customer(customer_id, country, next(met[country.name]), day)


def _customer(customer_id: int, country: Country, nth: int, first_day: date) -> Customer:
    first, last = _full_names(country)[nth]
    is_company = sales.is_company(customer_id)
    provider = pick(("org", "net", "com"), "provider", customer_id)
    joined = first_day - timedelta(days=1 + number("joined", customer_id) % 3)
    return Customer(
        id=customer_id,
        name=f"{first} {last}",
        email=f"{_mailbox(first)}.{_mailbox(last)}@example.{provider}",
        phone=_phone(country, customer_id) if percent("phone", customer_id) < 65 else None,
        company=pick(country.companies, "name", customer_id) if is_company else None,
        country=country.name,
        region=country.region,
        account_manager_id=pick((5, 5, 9), "manager", customer_id) if is_company else None,
        newsletter=percent("newsletter", customer_id) < 46,
        born_on=None if is_company else _born_on(customer_id),
        notes=pick(NOTES, "note", customer_id) if percent("notes", customer_id) < 6 else None,
        created_at=sales.at(joined, "joined", customer_id),
    )


@cache
def _full_names(country: Country) -> Sequence[tuple[str, str]]:
    every = list(pairs(country.first_names, country.last_names))
    return shuffled(every, country.name)


def _phone(country: Country, customer_id: int) -> str:
    return f"+{country.dial} 555 01{number('digits', customer_id) % 10_000:04}"


def _born_on(customer_id: int) -> date | None:
    if percent("age known", customer_id) >= 70:
        return None
    return date(1951, 1, 1) + timedelta(days=number("born", customer_id) % (54 * 365))


def _addresses(customers: Sequence[Customer]) -> Iterator[Address]:
    numbers = count(1)
    for customer in customers:
        home = sales.country_of(customer.id)
        yield _address(next(numbers), customer, "office" if customer.company else "home", home)
        if percent("second", customer.id) >= 32:
            continue
        label = pick(("work", "holiday", "family", "pickup"), "label", customer.id)
        abroad = label in ("holiday", "family") and percent("abroad", customer.id) < 45
        country = pick(COUNTRIES, "other country", customer.id) if abroad else home
        yield _address(next(numbers), customer, label, country)


def _address(address_id: int, customer: Customer, label: str, country: Country) -> Address:
    code, _, city = pick(country.cities, "city", address_id).partition("/")
    house = 1 + number("house", address_id) % 120
    recipient = customer.name
    if label == "family":
        recipient = f"{pick(country.first_names, 'kin', address_id)} {customer.name.partition(' ')[2]}"
    return Address(
        id=address_id,
        customer_id=customer.id,
        label=label,
        recipient=recipient,
        street=country.street.format(street=pick(country.streets, "street", address_id), number=house),
        postal_code=code,
        city=city,
        country=country.name,
    )


def _orders(
    visits: Sequence[sales.Visit],
    bought: Mapping[int, Sequence[OrderLine]],
    addresses: Sequence[Address],
    products: Sequence[Product],
) -> Iterator[Order]:
    owned: dict[int, list[int]] = defaultdict(list)
    for address in addresses:
        owned[address.customer_id].append(address.id)
    for visit in visits:
        lines = bought[visit.order_id]
        yield sales.order(visit, lines, owned[visit.customer_id], products)


def _shipments(
    orders: Sequence[Order],
    visits: Sequence[sales.Visit],
    bought: Mapping[int, Sequence[OrderLine]],
    products: Sequence[Product],
) -> Iterator[Shipment]:
    numbers = count(1)
    for order, visit in zip(orders, visits, strict=True):
        for shipment in sales.shipments(order, visit, bought[order.id], products):
            yield shipment._replace(id=next(numbers))


def _movements(
    products: Sequence[Product],
    orders: Sequence[Order],
    bought: Mapping[int, Sequence[OrderLine]],
) -> list[StockMovement]:
    sold: dict[int, list[tuple[Order, OrderLine]]] = defaultdict(list)
    for order in orders:
        if order.status in ("paid", "shipped", "returned"):
            for line in bought[order.id]:
                sold[line.product_id].append((order, line))
    found = [each for product in products for each in sales.movements(product, sold[product.id])]
    return sorted(found, key=lambda each: (each.moved_at, each.product_id, -each.quantity))


def _guides() -> Iterator[Guide]:
    text = (Path(__file__).parent / "guides.md").read_text(encoding="utf-8")
    kinds = {kind.name: nth for nth, kind in enumerate(KINDS, start=FIRST_KIND)}
    authors = {colleague.name: nth for nth, colleague in enumerate(STAFF, start=1)}
    for nth, section in enumerate(re.split(r"^# ", text, flags=re.MULTILINE)[1:], start=1):
        title, kind, author, published, body = section.split("\n", 4)
        yield Guide(
            id=nth,
            category_id=kinds[kind.removeprefix("kind: ")],
            author_id=authors[author.removeprefix("author: ")],
            title=title,
            body=body.strip() + "\n",
            published_on=date.fromisoformat(published.removeprefix("published: ")),
        )
