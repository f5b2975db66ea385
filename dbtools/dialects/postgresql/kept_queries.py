"""What a query reads, as the server keeps it with a view. The text of the query's tree in, numbers out."""

import re
from collections.abc import Iterator, Sequence

SELECT = 2  #: the bit of the privilege
WHOLE_ROW = 0  #: the number that stands for all columns
BIT_OF_WHOLE_ROW = 7
NOT_TEMPORARY = ("25006", "42501")  #: the states of a server or a login that makes no temporary views
#: How the tree of a query tells what it reads of each table; before version 16 the table itself told it.
READS = re.compile(
    r"\{RTEPERMISSIONINFO :relid (\d+) :inh \w+"
    r" :requiredPerms (\d+) :checkAsUser \d+ :selectedCols \(b([ \d]*)\)"
)
READS_BEFORE_16 = re.compile(
    r":relid (\d+) (?:(?!:relid ).)*? :requiredPerms (\d+) :checkAsUser \d+ :selectedCols \(b([ \d]*)\)",
    re.DOTALL,
)
FUNCTIONS = re.compile(r"\{\w+ (?::opno \d+ )?:(?:funcid|opfuncid|aggfnoid|winfnoid) (\d+)")
ORIGINS = re.compile(
    r":resno \d+ :resname \S+ :ressortgroupref \d+ :resorigtbl (\d+) :resorigcol (-?\d+) :resjunk false"
)
#: An outer join, or grouping by more than one set: either makes nulls of what has none.
MAKES_NULLS = re.compile(r":jointype [^0]|:groupingSets [^<]")


def reads_of(tree: str, version: int) -> Iterator[tuple[int, Sequence[int]]]:
    """Yield the tables that somebody must be allowed to read, each with the numbers of columns."""
    pattern = READS if version >= 16 else READS_BEFORE_16
    for relation, privileges, columns in pattern.findall(tree):
        if int(privileges) & SELECT:
            yield int(relation), [int(bit) - BIT_OF_WHOLE_ROW for bit in columns.split()]


def functions_of(tree: str) -> set[int]:
    """Return the functions that are called, those of operators too."""
    return {int(number) for number in FUNCTIONS.findall(tree)} - {0}


def origins_of(tree: str, width: int) -> list[tuple[int, int]]:
    """Return, of each of the *width* columns of the result, the table and the column whose cells it shows.

    Nought is the table where a column shows none, or where a join may have put nulls between.
    """
    if width == 0 or MAKES_NULLS.search(tree):
        return [(0, 0)] * width
    # The list of the query itself comes after those of all that is in it.
    found = ORIGINS.findall(tree)[-width:]
    return [(int(table), int(column)) for table, column in found]
