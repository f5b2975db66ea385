"""The causes for which a database does not run a statement, each with its error."""

import re

import pytest

from dbtools.backends.refusals import Cause

SENTENCES = re.compile(r"\S.*\.")


@pytest.mark.parametrize("cause", Cause, ids=lambda cause: cause.name)
def test_cause_makes_its_error_with_sentences(cause: Cause) -> None:
    error = cause.error()

    assert type(error) is cause.kind
    assert SENTENCES.fullmatch(error.message)
    assert SENTENCES.fullmatch(error.hint) or not error.hint
