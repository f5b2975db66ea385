"""Reviews of products, and a loyalty tier for customers."""

revision = "sample_0002"
down_revision = "sample_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the table product_reviews and the column customers.loyalty_tier."""
    # Not at the top, as in sample_0001.
    from migrations.sample.shop.reviews import reviews
    from migrations.sample.shop.scripts import insert, run

    run("0002_reviews")
    insert(reviews())


def downgrade() -> None:
    """Drop them again."""
    from migrations.sample.shop.scripts import run

    run("0002_reviews.down")
