"""What server and client say of themselves: as [server] has it, and what a session keeps of a client."""

import base64
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from dbtools import __version__
from dbtools.errors import ConfigurationError
from dbtools.server.mcp.kernel import LONGEST_CLIENT, Session, admit, info_for, server_info
from dbtools.server.mcp.versions import HANDSHAKES, REVISIONS
from dbtools.server.messages import Request
from dbtools.settings import Settings, load, settings_of

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 24
IMAGES: Mapping[str, tuple[str, bytes]] = {
    "logo.png": ("image/png", PNG),
    "logo.jpg": ("image/jpeg", b"\xff\xd8\xff\xe0"),
    "logo": ("image/webp", b"RIFF\0\0\0\0WEBPVP8 "),
    "logo.SVG": ("image/svg+xml", b"<?xml version='1.0'?><svg xmlns='http://www.w3.org/2000/svg'/>"),
}
LONGEST = 32 * 1_024


def _url(type: str, content: bytes) -> str:
    return f"data:{type};base64,{base64.b64encode(content).decode()}"


def _load(folder: Path, more: str = "", database: str = "") -> Settings:
    path = folder / "dbtools.toml"
    path.write_text(f'[database]\nurl = "Dental Clinic.db"\n{database}\n[server]\n{more}\n')
    return load(path)


def test_database_is_the_title_by_default(tmp_path: Path) -> None:
    name = {"name": "dbtools", "version": __version__}
    described = _load(tmp_path, database='description = "Patients."')
    remote = settings_of("postgresql://ada:dbt_secret@db.example.com/shop%20two?sslmode=disable")

    assert server_info(_load(tmp_path)) == {**name, "title": "Dental Clinic"}
    assert server_info(described) == {**name, "title": "Dental Clinic", "description": "Patients."}
    assert server_info(remote) == {**name, "title": "shop two"}


def test_each_revision_gets_the_members_that_it_has(tmp_path: Path) -> None:
    icon = "https://example.com/logo.png"
    settings = _load(
        tmp_path,
        'name = "clinic"\ntitle = "Clinic, Bern"\ndescription = "Appointments."\n'
        f'website = "https://example.com/db"\nicon = "{icon}"',
        'description = "Patients."',
    )
    info = server_info(settings)
    members = {
        "2024-11-05": ["name", "version"],
        "2025-03-26": ["name", "version"],
        "2025-06-18": ["name", "version", "title"],
        "2025-11-25": ["name", "version", "title", "description", "websiteUrl", "icons"],
        "2026-07-28": ["name", "version", "title", "description", "websiteUrl", "icons"],
    }

    assert info == {
        "name": "clinic",
        "version": __version__,
        "title": "Clinic, Bern",
        "description": "Appointments.",
        "websiteUrl": "https://example.com/db",
        "icons": [{"src": icon}],
    }
    assert {each.version: list(info_for(info, each)) for each in REVISIONS} == members


@pytest.mark.parametrize("name", IMAGES)
def test_icon_of_a_file_is_embedded(name: str, tmp_path: Path) -> None:
    type, content = IMAGES[name]
    (tmp_path / name).write_bytes(content)

    assert _load(tmp_path, f'icon = "{name}"').server.icon == _url(type, content)
    assert _load(tmp_path, f'icon = "{_url(type, content)}"').server.icon == _url(type, content)


REFUSED: Mapping[str, tuple[str, str]] = {
    "name with a space": ('name = "my server"', "name: must be 1 to 64 letters"),
    "empty name": ('name = ""', "name: must be 1 to 64 letters"),
    "title of two lines": (r'title = "a\nb"', "title: must be at most 500 characters on one line"),
    "long description": (f'description = "{"x" * 501}"', "description: must be at most 500 characters"),
    "website that is a script": ('website = "javascript:alert(1)"', "website: must be an https or http"),
    "website with a password": ('website = "https://a:dbt_secret@b.example"', "website: must be an https"),
    "icon over http": ('icon = "http://example.com/a.png"', "icon: must be an https URL, a data: URL"),
    "icon of another scheme": ('icon = "file:///etc/passwd"', "icon: must be an https URL"),
    "icon that is a page": ('icon = "data:text/html;base64,PGI+"', "icon: must be data:image/png;base64,…"),
    "icon without base64": ('icon = "data:image/png,x"', "icon: must be data:image/png;base64,…"),
    "icon of half a byte": ('icon = "data:image/png;base64,A"', "icon: must be data:image/png;base64,…"),
    "empty icon": ('icon = "data:image/png;base64,"', "icon: must be data:image/png;base64,…"),
    "large icon": (
        f'icon = "{_url("image/png", PNG + bytes(LONGEST))}"',
        "icon: must be data:image/png;base64,… (or jpeg, webp, svg+xml), of at most 32,768 bytes",
    ),
    "file that is missing": ('icon = "gone.png"', "icon: there is no such file"),
    "folder": ('icon = "."', "icon: there is no such file"),
    "file that is no image": ('icon = "dbtools.toml"', "icon: must be a PNG, JPEG, WebP or SVG image"),
    "large file": ('icon = "large.png"', "icon: must be a PNG, JPEG, WebP or SVG image of at most"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_no_client_could_show_is_refused_with_file_and_line(case: str, tmp_path: Path) -> None:
    text, problem = REFUSED[case]
    (tmp_path / "large.png").write_bytes(PNG + bytes(LONGEST))

    with pytest.raises(ConfigurationError) as raised:
        _load(tmp_path, text)

    assert str(raised.value).startswith("dbtools.toml:5: ")
    assert f"server.{problem}" in str(raised.value)
    assert "dbt_secret" not in str(raised.value)
    assert len(json.dumps(str(raised.value))) < 400


LONG = "x" * 100_000


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        pytest.param({}, {}, id="none"),
        pytest.param({"elicitation": {}}, {"elicitation": {}}, id="questions"),
        ({"elicitation": {"form": {LONG: 1}, LONG: {}}}, {"elicitation": {"form": {}}}),
        pytest.param({"elicitation": {"url": LONG}}, {"elicitation": {"url": {}}}, id="pages"),
        pytest.param({"elicitation": LONG}, {}, id="no object"),
        pytest.param({"roots": {"listChanged": True}}, {"roots": {}}, id="roots"),
        pytest.param({LONG: {}, "experimental": {LONG: LONG}}, {}, id="others"),
    ],
)
def test_session_keeps_only_the_capabilities_that_are_used(
    given: Mapping[str, object], kept: Mapping[str, object]
) -> None:
    session = Session()
    client = {"name": LONG, "version": LONG}
    params = {"protocolVersion": "2025-11-25", "capabilities": given, "clientInfo": client}

    peer = admit(session, Request(1, "initialize", params), ["initialize"])

    assert session.peer is peer
    assert peer.revision == HANDSHAKES["2025-11-25"]
    assert peer.capabilities == kept
    assert peer.client == LONG[:LONGEST_CLIENT]
