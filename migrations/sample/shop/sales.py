"""Three years of trade: products and people in; orders, parcels and stock movements out."""

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import NamedTuple

from migrations.sample.shop.catalogue import KINDS
from migrations.sample.shop.chance import number, percent, pick, pick_weighted
from migrations.sample.shop.people import COUNTRIES, STAFF, Country
from migrations.sample.shop.tables import Order, OrderLine, Product, Shipment, StockMovement

FIRST_DAY = date(2023, 1, 2)
LAST_DAY = date(2025, 12, 31)
FIRST_ORDER = 1001

#: orders in a hundred days, by month, in an average year
DEMAND = (55, 52, 68, 90, 112, 124, 118, 86, 74, 66, 84, 128)
GROWTH = {2023: 78, 2024: 100, 2025: 124}
PRICE_LEVEL = {2023: 93, 2024: 97, 2025: 100}
SEASON = {
    "summer": (2, 2, 4, 7, 10, 10, 9, 7, 5, 3, 2, 4),
    "all": (5,) * 12,
    "winter": (9, 8, 5, 2, 1, 1, 1, 2, 4, 7, 9, 12),
}
GIFT_MESSAGES = (
    "Happy birthday! Next year on the summit.",
    "For all the nights under the stars that are still to come.",
    "Alles Gute zum Geburtstag, und komm heil wieder runter!",
    "Joyeux Noël, et à bientôt au refuge.",
    "God jul fra hele gjengen 🎄",
)


class Visit(NamedTuple):
    """Somebody buys something on a day."""

    order_id: int
    day: date
    customer_id: int
    country: Country
    is_company: bool


def money(cents: int) -> Decimal:
    """Return an amount of *cents* in euros."""
    return Decimal(cents).scaleb(-2)


def cents(amount: Decimal) -> int:
    """Return an amount in euros as cents."""
    return int(amount.scaleb(2))


def at(day: date, *key: object) -> datetime:
    """Return an instant between 6 and 22 o'clock (UTC) of *day*."""
    second = 6 * 3600 + number("second", day, *key) % (16 * 3600)
    return datetime.combine(day, time(), UTC) + timedelta(seconds=second)


def visits() -> list[Visit]:
    """Return who orders and when; a third of them for the first time."""
    found: list[Visit] = []
    customers = 0
    for day in _days():
        for nth in range(_orders_on(day)):
            is_new = percent("new", day, nth) < 33 or customers < 5
            customers += is_new
            known = customers if is_new else _regular(customers, day, nth)
            order_id = FIRST_ORDER + len(found)
            found.append(Visit(order_id, day, known, country_of(known), is_company(known)))
    return found


def country_of(customer_id: int) -> Country:
    """Return where a customer lives."""
    return pick_weighted(COUNTRIES, [each.weight for each in COUNTRIES], "country", customer_id)


def is_company(customer_id: int) -> bool:
    """Tell whether a customer buys for a company or a club."""
    return percent("company", customer_id) < 9


def _days() -> Iterator[date]:
    for offset in range((LAST_DAY - FIRST_DAY).days + 1):
        yield FIRST_DAY + timedelta(days=offset)


def _orders_on(day: date) -> int:
    expected = DEMAND[day.month - 1] * GROWTH[day.year] // 100
    if day.month == 11 and day.day in (24, 25, 26, 27):
        expected *= 4
    return expected // 100 + (percent("orders", day) < expected % 100)


def _regular(customers: int, day: date, nth: int) -> int:
    # A draw below a draw favours those who came first, so that there are regulars.
    ceiling = 1 + number("ceiling", day, nth) % customers
    return 1 + number("regular", day, nth) % ceiling


def lines(visit: Visit, products: Sequence[Product]) -> list[OrderLine]:
    """Return what is bought in one order."""
    count = pick_weighted((1, 2, 3, 4, 5, 6), (32, 28, 19, 11, 6, 4), "count", visit.order_id)
    offered = [product for product in products if _is_sold(product, visit.day)]
    weights = [_popularity(product, visit.day) for product in offered]
    chosen = [pick_weighted(offered, weights, "product", visit.order_id, nth) for nth in range(count)]
    distinct = {product.id: product for product in chosen}.values()
    return [_line(visit, nth, product) for nth, product in enumerate(distinct, start=1)]


def _is_sold(product: Product, day: date) -> bool:
    return product.launched_on <= day and not (product.discontinued and day.year == 2025)


def _popularity(product: Product, day: date) -> int:
    season = SEASON[KINDS[product.category_id - 101].season][day.month - 1]
    affordable = 5 if product.price < 60 else 3 if product.price < 200 else 1
    return season * affordable * (1 + number("popularity", product.id) % 9)


def _line(visit: Visit, line_number: int, product: Product) -> OrderLine:
    most = 6 if visit.is_company else 3 if product.price < 40 else 1
    quantity = 1 + number("quantity", visit.order_id, product.id) % most
    unit_price = cents(product.price) * PRICE_LEVEL[visit.day.year] // 500 * 5
    discount = _discount(visit)
    amount = (quantity * unit_price * (100 - discount) + 50) // 100
    return OrderLine(
        order_id=visit.order_id,
        line_number=line_number,
        product_id=product.id,
        quantity=quantity,
        unit_price=money(unit_price),
        discount=money(discount),
        amount=money(amount),
    )


def _discount(visit: Visit) -> int:
    if visit.day.month == 11 and visit.day.day in (24, 25, 26, 27):
        return 20
    if visit.is_company:
        return 10
    return 15 if visit.day.month in (1, 8) and percent("sale", visit.order_id) < 40 else 0


def order(
    visit: Visit, bought: Sequence[OrderLine], addresses: Sequence[int], products: Sequence[Product]
) -> Order:
    """Return the order of *visit*, to one of the customer's *addresses*."""
    goods = sum(cents(line.amount) for line in bought)
    cost = sum(cents(products[line.product_id - 1].cost) * line.quantity for line in bought)
    fee = 0 if goods >= 15000 else visit.country.shipping_cents
    status = _status(visit)
    channel = pick_weighted(("web", "phone", "shop"), (74, 14, 12), "channel", visit.order_id)
    elsewhere = len(addresses) > 1 and percent("elsewhere", visit.order_id) < 55
    is_gift = elsewhere and percent("gift", visit.order_id) < 40
    return Order(
        id=visit.order_id,
        customer_id=visit.customer_id,
        billing_address_id=addresses[0],
        shipping_address_id=addresses[1] if elsewhere else addresses[0],
        handled_by_id=None if channel == "web" else _handler(visit),
        status=status,
        channel=channel,
        payment_method=_payment_method(visit),
        ordered_on=visit.day,
        paid_at=None if status in ("new", "cancelled") else _paid_at(visit),
        shipping_fee=money(fee),
        total=money(goods + fee),
        margin=money(goods - cost),
        gift_message=pick(GIFT_MESSAGES, "message", visit.order_id) if is_gift else None,
    )


def _status(visit: Visit) -> str:
    if visit.day > date(2025, 12, 28):
        return "new"
    if visit.day > date(2025, 12, 23):
        return "paid"
    fate = percent("fate", visit.order_id)
    return "cancelled" if fate < 3 else "returned" if fate < 8 else "shipped"


def _handler(visit: Visit) -> int:
    present = [
        nth
        for nth, colleague in enumerate(STAFF, start=1)
        if colleague.sells
        and colleague.hired_on <= visit.day.isoformat()
        and not (colleague.left_on and colleague.left_on < visit.day.isoformat())
    ]
    return pick(present, "handler", visit.order_id)


def _payment_method(visit: Visit) -> str:
    if visit.is_company:
        return "invoice"
    return pick_weighted(
        ("card", "paypal", "transfer", "invoice"), (48, 27, 15, 10), "payment", visit.order_id
    )


def _paid_at(visit: Visit) -> datetime:
    wait = 0 if percent("prompt", visit.order_id) < 70 else number("wait", visit.order_id) % 3
    return at(visit.day + timedelta(days=wait), "paid", visit.order_id)


def shipments(
    order: Order, visit: Visit, bought: Sequence[OrderLine], products: Sequence[Product]
) -> list[Shipment]:
    """Return the parcels of an order; a large one goes in two."""
    if order.status not in ("shipped", "returned"):
        return []
    grams = sum((products[line.product_id - 1].weight_grams or 0) * line.quantity for line in bought)
    parcels = 2 if grams > 9000 else 1
    return [_shipment(order, visit, nth, parcels, grams) for nth in range(parcels)]


def _shipment(order: Order, visit: Visit, nth: int, parcels: int, grams: int) -> Shipment:
    shipped_on = visit.day + timedelta(days=1 + number("packed", order.id, nth) % 3)
    days = visit.country.days + number("carried", order.id, nth) % 4 - 1
    delivered_on = shipped_on + timedelta(days=max(days, 1))
    is_lost = percent("lost", order.id, nth) < 1 or delivered_on > LAST_DAY
    carriers = ("Alpenpost", "Nordfracht", "Parcelway", "Cargo Cyclists")
    return Shipment(
        id=nth + 1,
        order_id=order.id,
        carrier=pick_weighted(carriers, (45, 25, 24, 6), "carrier", order.id),
        tracking_number=_serial_code(34012345, number("parcel", order.id, nth) % 10**9),
        weight_kg=None if grams == 0 else round(grams / parcels / 1000 + 0.3, 2),
        shipped_on=shipped_on,
        delivered_on=None if is_lost else delivered_on,
    )


def _serial_code(prefix: int, serial: int) -> int:
    # 18 digits, the last a check digit: beyond the integers that a float holds exactly.
    return with_check_digit(prefix * 10**9 + serial)


def with_check_digit(code: int) -> int:
    """Return *code* with the check digit that GS1 prescribes for it."""
    digits = [int(digit) for digit in reversed(str(code))]
    weighed = sum(digit * (3 if nth % 2 == 0 else 1) for nth, digit in enumerate(digits))
    return code * 10 + -weighed % 10


def movements(product: Product, sold: Sequence[tuple[Order, OrderLine]]) -> list[StockMovement]:
    """Return what came in and went out of *product*, from the first stocktake to the last."""
    found: list[StockMovement] = []
    stock = 0
    reserve = 0 if runs_out(product) else 1
    batch = 40 if product.price < 60 else 15 if product.price < 300 else 6
    for nth, (order, line) in enumerate(sold):
        if stock < line.quantity + reserve:
            left = sum(later.quantity for _, later in sold[nth:]) - stock
            quantity = batch if reserve else min(batch, left)
            quantity = max(quantity, line.quantity + reserve - stock)
            found.append(_delivery(product, order, quantity))
            stock += quantity
        found.append(_movement(order, line, -line.quantity, "sale"))
        stock -= line.quantity
        if order.status == "returned" and reserve:
            found.append(_movement(order, line, line.quantity, "return"))
    return found + _stocktake(product, stock)


def runs_out(product: Product) -> bool:
    """Tell whether *product* is not ordered again once it is sold."""
    return product.discontinued or percent("runs out", product.id) < 9


def _delivery(product: Product, order: Order, quantity: int) -> StockMovement:
    day = order.ordered_on - timedelta(days=1 + number("delivery", order.id, product.id) % 4)
    return StockMovement(at(day, product.id), product.id, quantity, "delivery", None, None)


def _movement(order: Order, line: OrderLine, quantity: int, reason: str) -> StockMovement:
    delay = 12 + number("back", order.id) % 14 if reason == "return" else 0
    day = min(order.ordered_on + timedelta(days=delay), LAST_DAY)
    when = at(day, reason, order.id)
    return StockMovement(when, line.product_id, quantity, reason, order.id, None)


def _stocktake(product: Product, stock: int) -> list[StockMovement]:
    if stock < 3 or percent("stocktake", product.id) >= 25:
        return []
    notes = (
        "Counted twice, two missing.",
        "Moth damage.",
        "Given to the mountain rescue.",
        "Photo samples, not for sale.",
    )
    when = at(date(2025, 12, 30), "stocktake", product.id)
    note = pick(notes, "note", product.id)
    return [StockMovement(when, product.id, -2, "correction", None, note)]
