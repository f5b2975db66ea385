"""Claims of a caller, as values of the types that a configuration declares."""

import pytest

from dbtools.settings import Settings, typed_claims


@pytest.mark.parametrize(
    ("declared", "given", "typed"),
    [
        pytest.param("boolean", "true", {"x": True}, id="true as a text"),
        pytest.param("boolean", "false", {"x": False}, id="false as a text"),
        pytest.param("boolean", True, {"x": True}, id="true"),
        pytest.param("boolean", "maybe", {}, id="no boolean"),
        pytest.param("integer", "42", {"x": "42"}, id="number as a text"),
        pytest.param("integer", 42, {"x": 42}, id="number"),
        pytest.param("integer", "42x", {}, id="no number"),
        pytest.param("integer", True, {}, id="a boolean is no number"),
        pytest.param("text", "a", {"x": "a"}, id="text"),
        pytest.param("text", ["a"], {}, id="a list is no text"),
        pytest.param("text", {"a": 1}, {}, id="an object is no text"),
        pytest.param("text", None, {}, id="nothing"),
    ],
)
def test_claim_is_a_value_of_its_type_or_missing(declared: str, given: object, typed: object) -> None:
    settings = Settings.model_validate({"policy": {"claims": {"x": declared}}})

    assert typed_claims(settings, {"x": given}) == typed


def test_claim_without_a_type_stays_as_it_is_where_it_is_one_value() -> None:
    claims = {"text": "a", "number": 1, "truth": False, "array": ["a"], "none": [], "object": {"a": 1}}

    assert typed_claims(Settings(), claims) == {"text": "a", "number": 1, "truth": False}
