"""The catalogue that the conformance suite expects of a server: tools, prompts, resources, each a value.

Names and contents are those of the suite; other texts are free.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Content = dict[str, Any]

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"picture").decode()
WAV = base64.b64encode(b"RIFF\x24\0\0\0WAVEfmt " + b"sound").decode()


def text(words: str) -> Content:
    """Return a text as content of a result or a message."""
    return {"type": "text", "text": words}


def embedded(uri: str, words: str, *, type: str = "text/plain") -> Content:
    """Return a resource as content of a result or a message."""
    return {"type": "resource", "resource": {"uri": uri, "mimeType": type, "text": words}}


def form(question: str, **types: str) -> Content:
    """Return what asks a person for a value of each of *types*, by name."""
    properties = {name: {"type": each} for name, each in types.items()}
    return asked(question, properties, required=list(types))


def asked(question: str, properties: Mapping[str, Content], *, required: Sequence[str] = ()) -> Content:
    """Return what asks a person for *properties*."""
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return {"method": "elicitation/create", "params": {"message": question, "requestedSchema": schema}}


def sample(prompt: str, *, most: int = 100) -> Content:
    """Return what asks a model to go on after *prompt*, with at most so many tokens."""
    messages = [{"role": "user", "content": text(prompt)}]
    return {"method": "sampling/createMessage", "params": {"messages": messages, "maxTokens": most}}


IMAGE = {"type": "image", "data": PNG, "mimeType": "image/png"}
ROOTS = {"method": "roots/list", "params": {}}
NAME = form("What is your name?", name="string")
CONFIRM = form("Please confirm", ok="boolean")

#: Tools that answer the same each time.
ANSWERS: Mapping[str, Sequence[Content]] = {
    "test_simple_text": [text("This is a simple text response for testing.")],
    "test_image_content": [IMAGE],
    "test_audio_content": [{"type": "audio", "data": WAV, "mimeType": "audio/wav"}],
    "test_embedded_resource": [embedded("test://embedded-resource", "This is an embedded resource content.")],
    "test_multiple_content_types": [
        text("Multiple content types test:"),
        IMAGE,
        embedded("test://mixed-content-resource", '{"test":"data","value":123}', type="application/json"),
    ],
    "json_schema_2020_12_tool": [text("Everything is fine with this address.")],
}


@dataclass(frozen=True, kw_only=True)
class Dialogue:
    """The questions that a client of 2026-07-28 must answer before its request is answered, in rounds."""

    rounds: Sequence[Mapping[str, Content]]
    keeps: bool = False  #: whether the client is given the round, sealed, to bring it back


DIALOGUES: Mapping[str, Dialogue] = {
    "test_input_required_result_elicitation": Dialogue(rounds=[{"user_name": NAME}]),
    "test_input_required_result_sampling": Dialogue(
        rounds=[{"capital_question": sample("What is the capital of France?")}]
    ),
    "test_input_required_result_list_roots": Dialogue(rounds=[{"client_roots": ROOTS}]),
    "test_input_required_result_request_state": Dialogue(rounds=[{"confirm": CONFIRM}], keeps=True),
    "test_input_required_result_tampered_state": Dialogue(rounds=[{"confirm": CONFIRM}], keeps=True),
    "test_input_required_result_multiple_inputs": Dialogue(
        rounds=[
            {"user_name": NAME, "greeting": sample("Generate a greeting", most=50), "client_roots": ROOTS}
        ],
        keeps=True,
    ),
    "test_input_required_result_multi_round": Dialogue(
        rounds=[
            {"step1": form("Step 1: What is your name?", name="string")},
            {"step2": form("Step 2: What is your favorite color?", color="string")},
        ],
        keeps=True,
    ),
    "test_input_required_result_capabilities": Dialogue(
        rounds=[{"user_name": NAME, "greeting": sample("Generate a greeting")}]
    ),
    "test_missing_capability": Dialogue(rounds=[{"greeting": sample("Generate a greeting")}]),
    "test_streaming_elicitation": Dialogue(rounds=[{"user_name": NAME}]),
}
PROMPT_DIALOGUES: Mapping[str, Dialogue] = {
    "test_input_required_result_prompt": Dialogue(
        rounds=[{"user_context": form("What context should the prompt use?", context="string")}]
    )
}

OPTIONS = ["option1", "option2", "option3"]
TITLED = [{"const": f"value{number}", "title": f"Choice {number}"} for number in (1, 2, 3)]
#: Tools that ask while they run, as clients of the 2025 era are asked.
QUESTIONS: Mapping[str, Content] = {
    "test_sampling": sample("Test prompt for sampling"),
    "test_elicitation": form("Please provide your information", username="string", email="string"),
    "test_elicitation_sep1034_defaults": asked(
        "Is this you?",
        {
            "name": {"type": "string", "default": "John Doe"},
            "age": {"type": "integer", "default": 30},
            "score": {"type": "number", "default": 95.5},
            "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
            "verified": {"type": "boolean", "default": True},
        },
    ),
    "test_elicitation_sep1330_enums": asked(
        "Which do you choose?",
        {
            "untitledSingle": {"type": "string", "enum": OPTIONS},
            "titledSingle": {"type": "string", "oneOf": TITLED},
            "legacyEnum": {"type": "string", "enum": OPTIONS, "enumNames": ["One", "Two", "Three"]},
            "untitledMulti": {"type": "array", "items": {"type": "string", "enum": OPTIONS}},
            "titledMulti": {"type": "array", "items": {"anyOf": TITLED}},
        },
    ),
}

PLAIN: Content = {"type": "object"}
#: Input schemas of tools that have one worth looking at.
SCHEMAS: Mapping[str, Content] = {
    "test_sampling": {"type": "object", "properties": {"prompt": {"type": "string"}}},
    "test_elicitation": {"type": "object", "properties": {"message": {"type": "string"}}},
    "json_schema_2020_12_tool": {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
            }
        },
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    },
}

#: Prompts: what they ask for by name, and what they say of it.
PROMPTS: Mapping[str, Sequence[Content]] = {
    "test_simple_prompt": [text("This is a simple prompt for testing.")],
    "test_prompt_with_arguments": [text("Prompt with arguments: arg1='{arg1}', arg2='{arg2}'")],
    "test_prompt_with_embedded_resource": [
        embedded("{resourceUri}", "Embedded resource content for testing."),
        text("Please process the embedded resource above."),
    ],
    "test_prompt_with_image": [IMAGE, text("Please analyze the image above.")],
    "test_input_required_result_prompt": [text("Speak as the context has it.")],
}
ARGUMENTS: Mapping[str, Sequence[str]] = {
    "test_prompt_with_arguments": ("arg1", "arg2"),
    "test_prompt_with_embedded_resource": ("resourceUri",),
}

RESOURCES: Mapping[str, Content] = {
    "test://static-text": {
        "mimeType": "text/plain",
        "text": "This is the content of the static text resource.",
    },
    "test://static-binary": {"mimeType": "image/png", "blob": PNG},
    "test://watched-resource": {"mimeType": "text/plain", "text": "Whoever subscribes is told of changes."},
}
TEMPLATE = "test://template/{id}/data"
