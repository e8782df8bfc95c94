"""The price of a basket."""

SHIPPING_CENTS = 490
FREE_FROM_CENTS = 5_000


def total(articles: list[tuple[int, int]]) -> int:
    """The price in cents of (price in cents, count) pairs, shipping included."""
    cents = 0
    for price_cents, count in articles:
        line_cents = price_cents * count
        if count > 10:
            line_cents -= line_cents // 10
        cents += line_cents
    if cents >= FREE_FROM_CENTS:
        return cents
    return cents + SHIPPING_CENTS
