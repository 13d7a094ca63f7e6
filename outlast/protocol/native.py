"""What the API has besides functions and MCP: tools and items that we neither make nor run, known by name.

A model server that speaks the Responses API (`native` in its capabilities) gets them as they came. Another one cannot
take them: `admit` says what happens to the tools, the loop's preparation what becomes of the items.
"""

from collections.abc import Collection, Sequence

from pydantic import BaseModel, ConfigDict

from outlast.protocol.errors import UnsupportedFeature
from outlast.protocol.hosted import key_of
from outlast.protocol.json import JsonObject

# Tools that an OpenAI server runs itself.
HOSTED_TOOLS = frozenset(
    {
        "web_search",
        "web_search_preview",
        "file_search",
        "code_interpreter",
        "image_generation",
        "programmatic_tool_calling",
    }
)
# Tools whose calls the client runs, but for functions.
CLIENT_TOOLS = frozenset(
    {
        "computer",
        "computer_use",
        "computer_use_preview",
        "custom",
        "namespace",
        "tool_search",
        "shell",
        "local_shell",
        "apply_patch",
    }
)
_DATED = ("web_search_", "file_search_", "code_interpreter_", "image_generation_", "computer_")

# Calls a model server ran itself: they count against `max_tool_calls`.
HOSTED_CALLS = frozenset(
    {"web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call", "program"}
)
# Outputs of calls that are neither function nor custom, and the calls they answer.
ANSWERS = {
    "computer_call_output": "computer_call",
    "local_shell_call_output": "local_shell_call",
    "shell_call_output": "shell_call",
    "apply_patch_call_output": "apply_patch_call",
    "tool_search_output": "tool_search_call",
}
CALLS = frozenset(ANSWERS.values())
# Items that bring tools with them, so that a round may have tools although `tools` is empty.
TOOL_ITEMS = frozenset({"additional_tools", "tool_search_output"})
# Items whose id their type requires; the others' ids mean nothing to a server that keeps nothing.
WITH_ID = HOSTED_CALLS | {"computer_call", "local_shell_call", "local_shell_call_output", "program_output"}
ITEMS = HOSTED_CALLS | TOOL_ITEMS | CALLS | ANSWERS.keys() | {"program_output", "configuration_update"}


class NativeTool(BaseModel):
    """A tool of another type than function and MCP, as sent."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True)

    type: str


def known(kind: str) -> bool:
    """Whether the API has tools of this type."""
    return kind in HOSTED_TOOLS or kind in CLIENT_TOOLS or kind.startswith(_DATED)


def hosted(kind: str) -> bool:
    """Whether the model server runs tools of this type itself."""
    return kind in HOSTED_TOOLS or (kind.startswith(_DATED) and not kind.startswith("computer_"))


def nested(tool: NativeTool) -> list[JsonObject]:
    """The functions and custom tools of a namespace."""
    inside = (tool.model_extra or {}).get("tools")
    return [each for each in inside if isinstance(each, dict)] if isinstance(inside, list) else []


def secret_place(tool: NativeTool) -> str | None:
    """Where a tool carries secrets for its container: they would be stored and shown with the tool."""
    for place in ("container", "environment"):
        box = (tool.model_extra or {}).get(place)
        policy = box.get("network_policy") if isinstance(box, dict) else None
        if isinstance(policy, dict) and policy.get("domain_secrets"):
            return f"{place}.network_policy.domain_secrets"
    return None


def admit(tools: Sequence[object], choice: object, *, bound: Collection[str], skip: bool) -> None:
    """Refuse what a model without the Responses API cannot be asked. Its other `NativeTool`s are left out: types the
    API does not have, and with `skip` (`[tools] unsupported = "skip"`) every type. `choice`: the parsed `tool_choice`;
    `bound`: hosted types that run here.

    Raises: UnsupportedFeature for a type that must not be left out, or for a choice of nothing but what is left out.
    """
    for index, tool in enumerate(tools):
        if isinstance(tool, NativeTool) and known(tool.type) and not skip and not _runs(tool, bound):
            raise UnsupportedFeature(
                f"Tools of type '{tool.type}' are not available with this model: its server does not know them and "
                f"nothing here runs them. Remove the tool, or have the operator {_remedy(tool.type)}set [tools] "
                'unsupported = "skip" to leave such tools out.',
                param=f"tools[{index}].type",
            )
    missing = [isinstance(tool, NativeTool) and not _runs(tool, bound) for tool in tools]
    if (isinstance(choice, NativeTool) and not _runs(choice, bound)) or (choice == "required" and all(missing)):
        raise UnsupportedFeature(
            "'tool_choice' asks for a tool that is not available with this model: choose another.",
            param="tool_choice",
        )


def _runs(tool: NativeTool, bound: Collection[str]) -> bool:
    return key_of(tool.type) in bound


def _remedy(kind: str) -> str:
    key = key_of(kind)
    if key is None:
        return ""
    return f'bind it to an MCP tool ([mcp.servers.NAME] builtin_type = "{key}", builtin_tool_name = "...") or '
