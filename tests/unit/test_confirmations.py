"""Tokens that confirm a previewed change."""

import time

import pytest

from dbtools import errors
from dbtools.service.transactions import TOKEN_LIFETIME, Confirmations

SECRET = "a secret that two workers share, long enough"
PREVIEW = b"sixteen bytes of"


def test_token_confirms_its_preview_in_every_process_with_the_secret() -> None:
    token = Confirmations(SECRET).seal("call", PREVIEW)

    assert Confirmations(SECRET).open(token, "call").preview == PREVIEW


def test_tokens_of_one_preview_have_different_ids() -> None:
    confirmations = Confirmations("")
    tokens = [confirmations.seal("call", PREVIEW) for _ in range(2)]

    first, second = (confirmations.open(token, "call").id for token in tokens)

    assert first != second


def _flipped(token: str, at: int) -> str:
    return token[:at] + ("A" if token[at] != "A" else "B") + token[at + 1 :]


@pytest.mark.parametrize("at", [0, 15, 16, 20, 22, 42, 43, 63])
def test_token_with_one_changed_character_is_refused(at: int) -> None:
    confirmations = Confirmations(SECRET)
    token = confirmations.seal("call", PREVIEW)

    with pytest.raises(errors.NotConfirmed):
        confirmations.open(_flipped(token, at), "call")


@pytest.mark.parametrize("token", ["", "x", "é" * 64, "A" * 60, "A" * 64, "A" * 200, "====", "\ud800"])
def test_what_is_no_token_is_refused(token: str) -> None:
    with pytest.raises(errors.NotConfirmed):
        Confirmations(SECRET).open(token, "call")


def test_token_of_another_call_or_another_secret_is_refused() -> None:
    token = Confirmations(SECRET).seal("call", PREVIEW)

    with pytest.raises(errors.NotConfirmed, match="another call"):
        Confirmations(SECRET).open(token, "another call")
    with pytest.raises(errors.NotConfirmed, match="another call"):
        Confirmations("").open(token, "call")


def test_token_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    confirmations, now = Confirmations(SECRET), time.time()
    token = confirmations.seal("call", PREVIEW)

    monkeypatch.setattr(time, "time", lambda: now + TOKEN_LIFETIME - 1)
    assert confirmations.open(token, "call").preview == PREVIEW
    monkeypatch.setattr(time, "time", lambda: now + TOKEN_LIFETIME + 1)
    with pytest.raises(errors.NotConfirmed, match="expired"):
        confirmations.open(token, "call")
