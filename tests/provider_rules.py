"""What providers of models accept as the definitions of functions: one rule each, with its source.

A provider refuses the whole request if one tool breaks a rule, and the tools of all servers are lost.
Clients pass input schemas on as they are, or after changes that a server cannot know.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from dbtools.tools.definition import ToolDefinition

Node = Mapping[str, Any]
#: https://cloud.google.com/vertex-ai/docs/reference/rest/v1/Schema and https://ai.google.dev/api/caching#Schema
GEMINI_KEYWORDS = {
    *("type", "title", "description", "default", "nullable", "enum", "format", "pattern", "example"),
    *("minimum", "maximum", "minLength", "maxLength", "items", "minItems", "maxItems"),
    *("properties", "required", "propertyOrdering", "minProperties", "maxProperties", "anyOf"),
}
GEMINI_TYPES = {"string", "integer", "number", "boolean", "array", "object"}
#: Lookaround, and whatever else means something only to some engines.
SPECIAL_PATTERN = re.compile(r"\(\?(?!:)|\\[^dswDSWbB.\-+*?^$|/()\[\]{}\\]")
LONGEST = 1_024  #: characters of a description
MOST_CHARACTERS = 120_000  #: of all names of properties and values of enums
LARGE_ENUM, LONGEST_ENUM = 250, 15_000  #: values, and characters of so many


class Requirement(NamedTuple):
    """A rule that each definition must meet."""

    name: str
    source: str
    broken: Callable[[ToolDefinition], object]  #: what breaks the rule; nothing if it is met


def nodes_of(schema: Node) -> Iterator[Node]:
    """Yield *schema* and every schema within it."""
    yield schema
    inner = [*schema.get("properties", {}).values(), *schema.get("prefixItems", ())]
    for each in (*inner, *(schema[name] for name in ("items",) if name in schema)):
        yield from nodes_of(each)


def depth_of(schema: Node, kinds: Sequence[str]) -> int:
    """Return how many schemas of *kinds* contain each other in *schema*."""
    inner = [*schema.get("properties", {}).values(), *([schema["items"]] if "items" in schema else [])]
    return (schema.get("type") in kinds) + max((depth_of(each, kinds) for each in inner), default=0)


def _inputs(broken: Callable[[Node], object]) -> Callable[[ToolDefinition], object]:
    """Return the check that no schema of the arguments is *broken*."""
    return lambda definition: [node for node in nodes_of(definition.input_schema) if broken(node)]


def _names(node: Node) -> Sequence[str]:
    return list(node.get("properties", {}))


def _enums(definition: ToolDefinition) -> Sequence[Sequence[str]]:
    return [node["enum"] for node in nodes_of(definition.input_schema) if "enum" in node]


def _characters(definition: ToolDefinition) -> int:
    names = [name for node in nodes_of(definition.input_schema) for name in _names(node)]
    values = [str(value) for values in _enums(definition) for value in values]
    return sum(map(len, (*names, *values)))


def _is_invalid(schema: Node) -> bool:
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError:
        return True
    return False


FUNCTION_NAME = "https://platform.openai.com/docs/api-reference/chat/create#chat-create-tools"
GEMINI_NAME = (
    "https://cloud.google.com/dotnet/docs/reference/Google.Cloud.AIPlatform.V1/latest/"
    "Google.Cloud.AIPlatform.V1.FunctionDeclaration"
)
OPENAI_LIMITS = "https://platform.openai.com/docs/guides/structured-outputs#supported-schemas"
REQUIREMENTS = (
    Requirement(
        "name of a tool: OpenAI, Anthropic",
        FUNCTION_NAME,
        lambda each: not re.fullmatch("[a-zA-Z0-9_-]{1,64}", each.name),
    ),
    Requirement("name of a tool: Gemini", GEMINI_NAME, lambda each: not re.match("[a-zA-Z_]", each.name)),
    Requirement(
        "description of a tool: OpenAI",
        "https://github.com/getsentry/sentry-mcp/issues/106",
        lambda each: not 0 < len(each.description) <= LONGEST,
    ),
    Requirement(
        "descriptions of parameters are no longer than that of the tool",
        "https://github.com/getsentry/sentry-mcp/issues/106",
        _inputs(lambda node: len(node.get("description", "")) > LONGEST),
    ),
    Requirement(
        "JSON Schema 2020-12: Anthropic",
        "https://github.com/anthropics/claude-code/issues/63673",
        lambda each: _is_invalid(each.input_schema) or _is_invalid(each.output_schema),
    ),
    Requirement(
        "names of properties: Anthropic",
        "https://github.com/anthropics/claude-code/issues/79418",
        _inputs(
            lambda node: [name for name in _names(node) if not re.fullmatch("[a-zA-Z0-9_.-]{1,64}", name)]
        ),
    ),
    Requirement(
        "names of properties: Gemini",
        "https://googleapis.github.io/js-genai/interfaces/types.FunctionDeclaration.html",
        _inputs(
            lambda node: [
                name for name in _names(node) if not re.fullmatch("[a-zA-Z_][a-zA-Z0-9_]{0,63}", name)
            ]
        ),
    ),
    Requirement(
        "keywords: Gemini and Vertex have a field for these only",
        "https://github.com/danny-avila/LibreChat/pull/13850",
        _inputs(lambda node: set(node) - GEMINI_KEYWORDS),
    ),
    Requirement(
        "one type in every schema: Gemini",
        "https://github.com/n8n-io/n8n/issues/15553",
        _inputs(lambda node: not isinstance(node.get("type"), str) or node["type"] not in GEMINI_TYPES),
    ),
    Requirement(
        "objects within the arguments have properties: Gemini",
        "https://github.com/MarkusPfundstein/mcp-obsidian/issues/21",
        lambda each: [
            node
            for node in nodes_of(each.input_schema)
            # A converter leaves out the parameters of a tool that has none.
            if node is not each.input_schema and node["type"] == "object" and not node.get("properties")
        ],
    ),
    Requirement(
        "properties only in objects: Gemini",
        "https://github.com/anomalyco/opencode/issues/11889",
        _inputs(lambda node: node["type"] != "object" and {"properties", "required"} & set(node)),
    ),
    Requirement(
        "required properties are defined: Gemini",
        "https://github.com/iBUHub/AIStudioToAPI/issues/154",
        _inputs(lambda node: set(node.get("required", ())) - set(_names(node))),
    ),
    Requirement(
        "closed objects say what is required: strict validators",
        "https://github.com/anomalyco/opencode/issues/45245",
        _inputs(lambda node: node.get("additionalProperties") is False and "required" not in node),
    ),
    Requirement(
        "arrays have items: OpenAI, Gemini, VS Code",
        "https://github.com/digitalocean-labs/mcp-digitalocean/issues/265",
        _inputs(lambda node: (node["type"] == "array") != ("items" in node)),
    ),
    Requirement(
        "choices only of texts: Gemini",
        "https://github.com/NousResearch/hermes-agent/pull/14104",
        _inputs(
            lambda node: (
                "enum" in node
                and (node["type"] != "string" or not all(isinstance(each, str) for each in node["enum"]))
            )
        ),
    ),
    Requirement(
        "choices are not empty: Gemini",
        "https://github.com/anomalyco/opencode/pull/46676",
        _inputs(lambda node: "enum" in node and not (node["enum"] and all(node["enum"]))),
    ),
    Requirement(
        "formats of texts: Gemini",
        "https://firebase.google.com/docs/reference/js/ai.schemashared",
        _inputs(lambda node: node.get("format", "date-time") != "date-time"),
    ),
    Requirement(
        "plain patterns: OpenAI",
        "https://github.com/vercel/ai/pull/21037",
        _inputs(lambda node: SPECIAL_PATTERN.search(node.get("pattern", ""))),
    ),
    Requirement(
        "levels of objects: OpenAI",
        OPENAI_LIMITS,
        lambda each: depth_of(each.input_schema, ["object"]) > 5,
    ),
    Requirement(
        "levels of all schemas: other providers",
        "https://github.com/Avick3110/houseCARL/issues/730",
        lambda each: depth_of(each.input_schema, list(GEMINI_TYPES)) > 10,
    ),
    Requirement(
        "number of properties: OpenAI",
        OPENAI_LIMITS,
        lambda each: sum(len(_names(node)) for node in nodes_of(each.input_schema)) > 5_000,
    ),
    Requirement("number of choices: OpenAI", OPENAI_LIMITS, lambda each: sum(map(len, _enums(each))) > 1_000),
    Requirement(
        "characters of many choices: OpenAI",
        OPENAI_LIMITS,
        lambda each: [
            values
            for values in _enums(each)
            if len(values) > LARGE_ENUM and sum(map(len, values)) > LONGEST_ENUM
        ],
    ),
    Requirement(
        "characters of names and choices: OpenAI",
        OPENAI_LIMITS,
        lambda each: _characters(each) > MOST_CHARACTERS,
    ),
    # Cells may have any type. A client that passes output schemas on uses fields that take JSON Schema.
    Requirement(
        "arrays of answers have items",
        "https://github.com/Skyvern-AI/skyvern/pull/8628",
        lambda each: [
            node
            for node in nodes_of(each.output_schema)
            if "array" in node.get("type", ()) and not {"items", "prefixItems"} & set(node)
        ],
    ),
    Requirement(
        "objects of answers have properties",
        "https://github.com/MarkusPfundstein/mcp-obsidian/issues/21",
        lambda each: [
            node
            for node in nodes_of(each.output_schema)
            if node.get("type") == "object" and not node.get("properties")
        ],
    ),
)
#: https://docs.cloud.google.com/vertex-ai/docs/reference/rest/v1/Tool, https://github.com/zed-industries/zed/issues/32946
MOST_TOOLS = 128


def broken_rules(definition: ToolDefinition) -> Mapping[str, object]:
    """Return which rules *definition* breaks, and how."""
    found = {f"{definition.name}: {rule.name}": rule.broken(definition) for rule in REQUIREMENTS}
    return {name: what for name, what in found.items() if what}
