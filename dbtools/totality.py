"""Whether a row filter can raise an error. An operator's condition in, yes or no out.

A database evaluates a filter and a caller's conditions in any order. Where the filter can raise an error of a
row, the error would tell whether the caller's conditions hold for it. What is not known to be total here is
read behind an optimisation barrier, which costs the indexes of the caller's conditions.
"""

from collections.abc import Collection, Iterator, Sequence

from dbtools.parameters import Fragment, Kind, Lexis, Token, tokenize, words

#: Words that may stand before a parenthesis without being a function.
KEYWORDS = words(
    "all and any as between by case distinct else escape exists from in is join not on or select some then "
    "union values when where"
)
PATTERNED = frozenset({"like", "ilike", "glob"})  #: whose right side must be a constant
PARTIAL = frozenset({"match", "regexp", "similar", "zone"})
SUBQUERIES = frozenset({"in", "exists", "any", "all", "some", "from", "join", ","})
SIGNS = frozenset("=<>!,.")  #: of comparisons, lists and qualified names
ARITHMETIC = frozenset("+-*/%")
CONSTANTS = (Kind.PARAMETER, Kind.QUOTED)
NOTHING = Token(kind=Kind.BLANK, text="", offset=0)


def is_total(condition: Fragment, lexis: Lexis, computed: Collection[str] = ()) -> bool:
    """Return whether *condition* raises no error, whatever a row holds.

    Reading a cell of the tables named *computed*, in lower case, may raise one.
    """
    tokens = [
        each
        for each in tokenize(condition.text, lexis)
        if each.kind not in (Kind.BLANK, Kind.COMMENT, Kind.SEMICOLON)
    ]
    return not any(_raising(tokens, lexis, computed))


def _raising(tokens: Sequence[Token], lexis: Lexis, computed: Collection[str]) -> Iterator[bool]:
    padded = [NOTHING, *tokens, NOTHING]
    for before, token, after in zip(padded, tokens, padded[2:], strict=False):
        word = token.text.lower()
        match token.kind:
            case Kind.CODE if word == "::":
                yield before.kind not in CONSTANTS and not before.text.isdigit()
            case Kind.CODE if word[0].isalpha() or word[0] == "_":
                yield word in computed or _raises(word, after, lexis)
            case Kind.CODE if word in ARITHMETIC:
                yield not (lexis.lenient and after.text != ">") and not _is_harmless(before, word, after)
            case Kind.CODE:
                yield word not in SIGNS and not word.isdigit()
            case Kind.QUOTED:
                yield word.strip('"`[]') in computed or after.text == "("
            case Kind.OPENING:
                scalar = after.text.lower() == "select" and before.text.lower() not in SUBQUERIES
                yield scalar and not lexis.lenient
            case _:
                yield False


def _raises(word: str, after: Token, lexis: Lexis) -> bool:
    """Return whether *word* is an operator or a function that may raise an error."""
    if word in PARTIAL or (word in PATTERNED and after.kind not in CONSTANTS):
        return True
    return after.text == "(" and word not in KEYWORDS and word not in lexis.total_functions


def _is_harmless(before: Token, sign: str, after: Token) -> bool:
    """Return whether *sign* is that of all columns, or of a negative number."""
    if sign == "*":
        return before.text.lower() in ("select", "(", ".")
    return after.text.isdigit() and (
        before.text in SIGNS or before.text == "(" or before.text.lower() in KEYWORDS
    )
