"""A tool call that asks first: refuse it, then ask again and allow it. The run waits in Temporal meanwhile."""

import os

from openai import OpenAI
from openai.types.responses import Response
from openai.types.responses.response_input_param import McpApprovalResponse
from openai.types.responses.response_output_item import McpApprovalRequest
from openai.types.responses.tool_param import Mcp

BASE = os.environ.get("OUTLAST_URL", "http://127.0.0.1:8080")
DESK: Mcp = {
    "type": "mcp",
    "server_label": "desk",
    "server_url": f"{BASE}/demo/mcp",
    # Looking costs nothing; everything else of this server asks.
    "require_approval": {"never": {"tool_names": ["lookup_order"]}},
}

client = OpenAI(base_url=f"{BASE}/v1", api_key="none")


def ask_for_refund(text: str) -> tuple[Response, McpApprovalRequest]:
    """The response that ends with a question, and the question."""
    response = client.responses.create(model="demo", input=text, tools=[DESK])
    question = response.output[-1]
    assert isinstance(question, McpApprovalRequest)
    print(f"{question.server_label}.{question.name} {question.arguments}")
    return response, question


def answer(response: Response, question: McpApprovalRequest, *, approve: bool, reason: str | None = None) -> Response:
    """Continue the response with the decision; the same workflow takes it up."""
    decision: McpApprovalResponse = {
        "type": "mcp_approval_response",
        "approval_request_id": question.id,
        "approve": approve,
    }
    if reason is not None:
        decision["reason"] = reason
    return client.responses.create(model="demo", previous_response_id=response.id, input=[decision], tools=[DESK])


asked, question = ask_for_refund("Refund order 1042, please.")
refused = answer(asked, question, approve=False, reason="send the boots back first")
print("refused: ", refused.output_text)

asked, question = ask_for_refund("The boots are back. Refund order 1042.")
allowed = answer(asked, question, approve=True)
print("allowed: ", allowed.output_text)
print("the call:", [item.type for item in allowed.output])
