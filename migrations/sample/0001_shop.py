"""The shop: its goods, its people, and three years of trade."""

from migrations.sample.shop.rows import shop
from migrations.sample.shop.scripts import insert, run

revision = "sample_0001"
down_revision = None
branch_labels = ("sample",)
depends_on = None


def upgrade() -> None:
    """Create the shop and fill it."""
    run("0001_shop")
    insert(shop())


def downgrade() -> None:
    """Drop the shop."""
    run("0001_shop.down")
