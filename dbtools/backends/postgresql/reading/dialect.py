"""The dialect in which every function and operator is PostgreSQL's own. SQLAlchemy's elements in, SQL out.

PostgreSQL finds functions and operators by name in the whole search path, and prefers an exact match in any
schema to those of the system. So each name is written with its schema. An operator with a schema binds as
strongly as any other, so parentheses show what belongs together.
"""

from collections.abc import Callable, Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql.asyncpg import PGCompiler_asyncpg, dialect as asyncpg_dialect
from sqlalchemy.sql import operators
from sqlalchemy.types import UserDefinedType

from dbtools.backends.compiled import ESCAPE, identifier
from dbtools.backends.postgresql.schema.vocabulary import SYSTEM

#: What is written like a function, but is syntax. NULLIF compares by "=", so its operands need the same type.
SYNTAX = ("all", "any", "coalesce", "greatest", "least", "nullif")
OPERATOR_SIGNS: Mapping[Callable[..., Any], str] = {
    operators.eq: "=",
    operators.ne: "<>",
    operators.lt: "<",
    operators.le: "<=",
    operators.gt: ">",
    operators.ge: ">=",
    operators.ilike_op: "~~*",
}
#: What is written by keywords. IN compares by "=", so its operands need the same type.
KEYWORDS = (
    operators.is_,
    operators.is_not,
    operators.in_op,
    operators.not_in_op,
    operators.collate,
)
#: The keywords before or after one operand, and those between conditions; none of them compares.
UNARY_KEYWORDS = (
    *(operators.inv, operators.exists, operators.distinct_op, operators.any_op, operators.all_op),
    *(operators.is_true, operators.is_false),
    *(operators.asc_op, operators.desc_op, operators.nulls_first_op, operators.nulls_last_op),
)
CONNECTIVES = (operators.and_, operators.or_)


class Named(UserDefinedType[Any]):
    """A type with the quoted name that it has in the catalog."""

    cache_ok = True

    def __init__(self, name: str, schema: str = "") -> None:
        self.name = name
        self.schema = schema or SYSTEM  #: of the operators that compare its values

    def get_col_spec(self, **_: object) -> str:
        """Return the name in SQL."""
        return self.name


class Compiler(PGCompiler_asyncpg):
    """Writes the schema of each function and operator."""

    def visit_function(self, func: Any, *arguments: Any, **options: Any) -> str:
        """Write the function *func*, which is the system's unless it has a schema."""
        text: str = super().visit_function(func, *arguments, **options)
        return text if func.packagenames or func.name in SYNTAX else f"{SYSTEM}.{text}"

    def visit_binary(self, binary: Any, *arguments: Any, **options: Any) -> str:
        """Write the operator of *binary* with its schema, in parentheses."""
        operator = binary.operator
        if operator is operators.between_op:
            least, most = binary.right.clauses
            return self.process(sa.and_(binary.left >= least, binary.left <= most).self_group(), **options)
        sign = (
            operator.opstring if isinstance(operator, operators.custom_op) else OPERATOR_SIGNS.get(operator)
        )
        if operator in KEYWORDS or sign == "collate":
            written: str = super().visit_binary(binary, *arguments, **options)  # type: ignore[no-untyped-call]
            return written
        if sign is None or binary.modifiers.get("escape", ESCAPE) != ESCAPE:
            raise ValueError(f"{operator} has no sign that can be written with its schema")
        left, right = (self.process(each, **options) for each in (binary.left, binary.right))
        types = (binary.left.type, binary.right.type)
        schema = next((each.schema for each in types if isinstance(each, Named)), SYSTEM)
        place = SYSTEM if schema == SYSTEM else identifier(schema)
        return f"({left} OPERATOR({place}.{sign}) {right})"

    def visit_unary(self, unary: Any, *arguments: Any, **options: Any) -> str:
        """Write a minus with its schema."""
        if unary.operator is operators.neg:
            return f"(OPERATOR({SYSTEM}.-) {self.process(unary.element, **options)})"
        if (unary.operator or unary.modifier) not in UNARY_KEYWORDS:
            raise ValueError(f"{unary.operator or unary.modifier} is not a keyword")
        written: str = super().visit_unary(unary, *arguments, **options)  # type: ignore[no-untyped-call]
        return written

    def visit_expression_clauselist(self, clauselist: Any, **options: Any) -> str:
        """Write conditions with AND or OR between them; SQLAlchemy joins other operands likewise."""
        if clauselist.operator not in CONNECTIVES:
            raise ValueError(f"{clauselist.operator} has no sign that can be written with its schema")
        written: str = super().visit_expression_clauselist(clauselist, **options)  # type: ignore[no-untyped-call]
        return written

    def visit_case(self, clause: Any, **options: Any) -> str:
        """Write a CASE of conditions: one of values compares by "="."""
        if clause.value is not None:
            raise ValueError("a CASE that compares values has no sign that can be written with its schema")
        written: str = super().visit_case(clause, **options)  # type: ignore[no-untyped-call]
        return written


class Dialect(asyncpg_dialect):
    """The dialect of asyncpg, for which Compiler writes the SQL."""

    statement_compiler = Compiler
