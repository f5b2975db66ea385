"""The shop: its goods, its people, three years of trade, and what it asks of them every day."""

revision = "sample_0001"
down_revision = None
branch_labels = ("sample",)
depends_on = ("registry_0001",)


def upgrade() -> None:
    """Create the shop, fill it, and put its queries into the registry."""
    # Not at the top: a wheel contains this revision, which Alembic loads with those of the registry.
    from migrations.sample.shop.queries import queries
    from migrations.sample.shop.rows import shop
    from migrations.sample.shop.scripts import insert, run

    run("0001_shop")
    insert(shop())
    insert(queries(), schema="dbtools")


def downgrade() -> None:
    """Drop the shop and its queries."""
    from migrations.sample.shop.queries import queries
    from migrations.sample.shop.scripts import delete, run

    delete(queries(), schema="dbtools")
    run("0001_shop.down")
