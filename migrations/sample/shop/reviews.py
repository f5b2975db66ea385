"""What buyers write afterwards: the rows of the shop in, reviews out."""

from collections.abc import Iterator
from datetime import timedelta
from typing import cast

from migrations.sample.shop.catalogue import KINDS
from migrations.sample.shop.chance import number, percent, pick, pick_weighted
from migrations.sample.shop.rows import FIRST_KIND, Rows, shop
from migrations.sample.shop.sales import LAST_DAY, at
from migrations.sample.shop.tables import Order, OrderLine, Product, ProductReview

TITLES = {
    5: ("Exactly what I was looking for", "Would buy it again", "Brilliant", "Worth every cent",
        "My constant companion", "Sehr zu empfehlen", "Parfait"),
    4: ("Very good, with one small flaw", "Does what it should", "Solid", "Good value",
        "Nearly perfect"),
    3: ("It is all right", "Good idea, mixed result", "Expected a little more"),
    2: ("Not convinced", "Too expensive for what it is", "Disappointing"),
    1: ("Sent it back", "Broke on the first tour", "Never again"),
}  # fmt: skip
TOURS = (
    "Used it for a week in the Stubai Alps.",
    "Along on the West Highland Way in May.",
    "Tested on three weekends in the Tatras.",
    "Came with me along the coast of Helgeland.",
    "Ten days on the GR 11, from Candanchú to Benasque.",
    "So far only in the Black Forest, but in all weathers.",
    "With the children on the Lechweg.",
    "Four huts in the Ötztal, two of them in fog.",
)


def reviews() -> Rows:
    """Return the rows of the second revision."""
    return {"product_reviews": list(_reviews())}


def _reviews() -> Iterator[ProductReview]:
    orders = {order.id: order for order in cast(list[Order], shop()["orders"])}
    products = cast(list[Product], shop()["products"])
    written: set[tuple[int, int]] = set()
    for line in cast(list[OrderLine], shop()["order_lines"]):
        order = orders[line.order_id]
        pair = (line.product_id, order.customer_id)
        if pair in written or not _is_reviewed(order, line):
            continue
        written.add(pair)
        yield _review(len(written), order, products[line.product_id - 1])


def _is_reviewed(order: Order, line: OrderLine) -> bool:
    if order.status not in ("shipped", "returned") or (LAST_DAY - order.ordered_on).days < 60:
        return False
    return percent("reviewed", line.order_id, line.product_id) < 19


def _review(review_id: int, order: Order, product: Product) -> ProductReview:
    rating = _rating(review_id, order, product)
    day = order.ordered_on + timedelta(days=14 + number("written", review_id) % 45)
    return ProductReview(
        id=review_id,
        product_id=product.id,
        customer_id=order.customer_id,
        rating=rating,
        title=pick(TITLES[rating], "title", review_id),
        body=_body(review_id, rating, product) if percent("body", review_id) < 82 else None,
        helpful_votes=max(0, number("votes", review_id) % 24 - 9),
        written_at=at(day, "review", review_id),
    )


def _rating(review_id: int, order: Order, product: Product) -> int:
    if order.status == "returned":
        weights = (8, 12, 25, 30, 25)
    elif percent("quality", product.id) < 70:
        weights = (56, 30, 9, 3, 2)
    else:
        weights = (29, 32, 20, 12, 7)
    return pick_weighted((5, 4, 3, 2, 1), weights, "rating", review_id)


def _body(review_id: int, rating: int, product: Product) -> str:
    kind = KINDS[product.category_id - FIRST_KIND]
    praise = pick(kind.praise, "praise", review_id)
    complaint = pick(kind.complaints, "complaint", review_id)
    tour = pick(TOURS, "tour", review_id)
    match rating:
        case 5:
            return f"{tour} {praise}"
        case 4:
            return f"{praise} {tour} {complaint}"
        case 3:
            return f"{complaint} Otherwise fine. {praise}"
        case _:
            return f"{tour} {complaint}"
