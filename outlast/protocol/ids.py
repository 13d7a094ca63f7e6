"""Ids of everything we mint: a prefix that names the kind and 128 random bits.

Ids are minted once, by us, in activities and in the API, never in workflow code (randomness there is not replayable).
Upstream ids never surface, but for reasoning and compaction items that carry `encrypted_content` (behaviour.md §1).
"""

import re
import secrets
from enum import StrEnum


class Prefix(StrEnum):
    """Prefixes as the API spells them."""

    RESPONSE = "resp"
    MESSAGE = "msg"
    REASONING = "rs"
    FUNCTION_CALL = "fc"
    FUNCTION_CALL_OUTPUT = "fco"
    CUSTOM_CALL = "ctc"
    MCP_CALL = "mcp"
    MCP_LIST = "mcpl"
    MCP_APPROVAL = "mcpr"
    MCP_APPROVAL_RESPONSE = "mcpa"
    CALL = "call"
    WEB_SEARCH = "ws"
    CODE_INTERPRETER = "ci"
    FILE_SEARCH = "fs"
    IMAGE_GENERATION = "ig"
    COMPACTION = "cmp"
    CONVERSATION = "conv"
    SECRET = "sec"
    BINDINGS = "bind"
    ITEM = "item"


_ID = re.compile(r"[A-Za-z0-9_.:-]{1,200}")


def mint(prefix: Prefix) -> str:
    """A new id, e.g. `resp_3f0c…`; 32 hex digits, unguessable."""
    return f"{prefix}_{secrets.token_hex(16)}"


def is_id(text: str) -> bool:
    """Whether `text` can be an id at all: charset and length (Temporal's ids stay under 200 characters)."""
    return _ID.fullmatch(text) is not None


# Which prefix an item of a type gets when it has no id of ours yet.
ITEM_PREFIX: dict[str, Prefix] = {
    "message": Prefix.MESSAGE,
    "reasoning": Prefix.REASONING,
    "function_call": Prefix.FUNCTION_CALL,
    "function_call_output": Prefix.FUNCTION_CALL_OUTPUT,
    "custom_tool_call": Prefix.CUSTOM_CALL,
    "mcp_call": Prefix.MCP_CALL,
    "mcp_list_tools": Prefix.MCP_LIST,
    "mcp_approval_request": Prefix.MCP_APPROVAL,
    "mcp_approval_response": Prefix.MCP_APPROVAL_RESPONSE,
    "web_search_call": Prefix.WEB_SEARCH,
    "code_interpreter_call": Prefix.CODE_INTERPRETER,
    "file_search_call": Prefix.FILE_SEARCH,
    "image_generation_call": Prefix.IMAGE_GENERATION,
    "compaction": Prefix.COMPACTION,
}


def mint_item(item_type: str) -> str:
    """A new id for an item of this type."""
    return mint(ITEM_PREFIX.get(item_type, Prefix.ITEM))
