"""The script that makes a least-privilege login. Needs in, SQL for psql out.

Whoever makes tables chooses their names, so that names are quoted in statements and kept on one line in
comments; and all is one transaction, so that a script that fails has changed nothing.
"""

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from asyncpg import Record

from dbtools.backends.plans import identifier
from dbtools.types import quoted

WIDTH = 100  #: characters of a comment
BODY = "$dbtools$"
NOTHING_MORE = "nosuperuser nocreatedb nocreaterole noreplication nobypassrls"
CREATED = """\
do {body}
begin
    if not exists (select from pg_catalog.pg_roles where rolname = {literal}) then
        {create};
    elsif exists (
        select from pg_catalog.pg_roles as r where rolname = {literal} and (
            rolsuper or rolcreatedb or rolcreaterole or rolreplication or rolbypassrls
            or exists (
                select from pg_catalog.pg_shdepend where refobjid = r.oid and deptype = 'o'
            )
        )
    ) then
        raise exception 'role % is there already, and owns something or can do more than read', {literal};
    end if;
end
{body};"""
APART = 16  #: the first version in which a member need not inherit


@dataclass(frozen=True, kw_only=True)
class Script:
    """What the script is made of."""

    roles: tuple[str, ...]  #: of the configuration
    login: str
    set_role: str | None  #: of the database, which the login becomes for each statement
    is_known: bool  #: whether there is such a role already, which keeps the grants that it has
    version: int  #: of the server, the major one
    database: str
    search_path: tuple[str, ...] | None  #: where a new login would have another
    grants: tuple[str, ...]  #: of what is read, without whom they are made to
    schemas: tuple[str, ...]
    functions: tuple[str, ...]  #: that row filters call, and that not everybody may
    guarded: Sequence[Record]  #: relations with row security
    foreign: Sequence[Record]  #: foreign tables
    earlier: Sequence[Record]
    public: Sequence[Record]

    def text(self) -> str:
        """Return the script."""
        names = " and ".join(map(quoted, self.roles))
        named = f"the role {names}" if len(self.roles) == 1 else f"each of the roles {names}"
        opening = _comment(
            f"A login that reads what {named} of dbtools reads, and no more. Run it with psql in the "
            f"database {quoted(self.database)}, as somebody who may create roles and grant what is granted "
            "here; write it anew and run it again when the role or a table changes."
        )
        sections = (
            [*opening, "begin;"],
            self._login(),
            self._earlier(),
            self._member(),
            self._reading(),
            ["commit;"],
            [*_comment("Left to you:"), *self._left()],
        )
        return "\n\n".join("\n".join(section) for section in sections if section) + "\n"

    @property
    def _reader(self) -> str:
        return self.set_role or self.login

    @property
    def _grants(self) -> Sequence[str]:
        return [f"{grant} to {identifier(self._reader)};" for grant in self.grants]

    def _login(self) -> list[str]:
        login, database = identifier(self.login), identifier(self.database)
        lines = [
            *_comment(
                "The login. One of this name that owns something, or is a superuser or the like, is refused. "
                "It gets no password here."
            ),
            _created(self.login, "login"),
            f"grant connect on database {database} to {login};",
            f"alter role {login} set default_transaction_read_only = on;",
        ]
        if self.search_path is not None:
            path = ", ".join(map(identifier, self.search_path)) or "''"
            lines += _comment("The search path of the login that wrote this script.")
            lines += [f"alter role {login} in database {database} set search_path = {path};"]
        return lines

    def _earlier(self) -> list[str]:
        roles = [row["name"] for row in self.earlier if row["schema"] is None]
        revoked = [
            *(identifier(role) for role in roles if role != self.set_role),
            *(f"all on table {qualified(row)}" for row in self.earlier if row["schema"] is not None),
        ]
        heading = _comment("What the login has been granted before.") if revoked else []
        return [*heading, *(f"revoke {each} from {identifier(self.login)};" for each in revoked)]

    def _member(self) -> list[str]:
        if self.set_role is None:
            return []
        options = " with inherit false, set true" if self.version >= APART else ""
        return [
            *_comment("The role that the login becomes for each statement (set_role)."),
            *([] if self.is_known else [_created(self.set_role, "nologin")]),
            f"grant {identifier(self.set_role)} to {identifier(self.login)}{options};",
        ]

    def _reading(self) -> list[str]:
        # Even where it becomes another, the login itself looks up the names in row filters.
        users = [self.login] if self.is_known else dict.fromkeys((self._reader, self.login))
        named = ", ".join(map(identifier, users))
        usage = [f"grant usage on schema {identifier(each)} to {named};" for each in self.schemas]
        if self.is_known:
            return [*_comment("Names in row filters are looked up by the login."), *usage]
        reason = _comment("What is read: columns that are seen or hashed, and what row filters read.")
        return [*reason, *usage, *self._grants]

    def _left(self) -> Iterator[str]:
        """Yield what is left to whoever runs the script: nothing of it is run."""
        reader = _plain(self._reader)
        yield from _item(f"A password: \\password {_plain(self.login)}")
        if self.public:
            may = "What everybody may do, this login may too. Unless somebody needs it:"
            yield from _item(may, map(_revoked, self.public))
        if self.is_known:
            may = (
                f"What {reader} may do: it is there already, and keeps what it was granted. "
                "Of what the rules show, callers see what it may select. All of that would be:"
            )
            yield from _item(may, self._grants)
        if self.functions:
            to = identifier(self._reader)
            grants = (f"grant execute on function {each} to {to};" for each in self.functions)
            yield from _item("Row filters call functions that not everybody may call:", grants)
        if self.guarded:
            sees = f"without a policy for {reader} it sees no row of {_names(self.guarded)}."
            yield from _item(f"Row security: {sees}")
        if self.foreign:
            yield from _item(f"Foreign tables want a user mapping: {_names(self.foreign)}.")


def _created(name: str, kind: str) -> str:
    """Return the statement that creates a role where there is none, and refuses one that can do more."""
    literal = "'" + name.replace("'", "''") + "'"
    body = BODY
    while body in name:
        body = f"${body[1:-1]}_$"
    create = f"create role {identifier(name)} {kind} {NOTHING_MORE}"
    return CREATED.format(body=body, literal=literal, create=create)


def qualified(row: Record) -> str:
    """Return the name of the relation *row*, with that of its schema where it has one."""
    return ".".join(identifier(row[part]) for part in ("schema", "name") if row[part] is not None)


def _plain(name: str) -> str:
    """Return *name* without quotes where it needs none."""
    return name if re.fullmatch(r"[a-z_][a-z0-9_]*", name) else identifier(name)


def _names(relations: Iterable[Record]) -> str:
    return ", ".join(f"{_plain(row['schema'])}.{_plain(row['name'])}" for row in relations)


def _revoked(row: Record) -> str:
    return f"revoke {row['privilege']} on {row['kind']} {qualified(row)} from public;"


def _comment(text: str) -> list[str]:
    return [f"-- {line}" for line in textwrap.wrap(_one_line(text), WIDTH)]


def _item(text: str, statements: Iterable[str] = ()) -> list[str]:
    first, *others = textwrap.wrap(_one_line(text), WIDTH)
    rest = (f"--     {_one_line(each)}" for each in statements)
    return [f"-- - {first}", *(f"--   {line}" for line in others), *rest]


def _one_line(text: str) -> str:
    """Return *text* without what could end a comment: a line of a name's own would be run."""
    return re.sub(r"[\x00-\x1f\x7f\x85\u2028\u2029]", " ", text)
