"""What a newcomer sees first: where things are, and commands that work as printed."""

import json
import shlex
import sys
from pathlib import Path

from outlast.approvals_client import DEFAULT_URL
from outlast.demo.front import PATH

_REQUEST = "Refund order 1042"

_TEXT = """
Outlast is ready.
{where}

1. curl, and a human in a second terminal. The stream stops at the refund and waits:

curl -sN {api}/v1/responses -H 'content-type: application/json' \\
  -d '{body}'

   Then, in a second terminal, see what waits and approve it by the id shown; the stream goes on:

{outlast} approvals list{url}
{outlast} approvals approve ID{url}

2. The openai package. The first answer ends with the question, the second request approves it:

{python} - <<'EOF'
from openai import OpenAI

client = OpenAI(base_url="{api}/v1", api_key="none")
tool = {tool}
first = client.responses.create(model="demo", input="{request}", tools=[tool])
ask = next(item for item in first.output if item.type == "mcp_approval_request")
print("asks to run", ask.name, ask.arguments)
approved = {{"type": "mcp_approval_response", "approval_request_id": ask.id, "approve": True}}
second = client.responses.create(model="demo", previous_response_id=first.id, input=[approved], tools=[tool])
print(second.output_text)
EOF

Ctrl-C ends everything.
"""


def started(*, api: str, ui: str, data_dir: str, models: str) -> str:
    """The text `outlast dev` prints when everything answers. `api`: base URL without `/v1`."""
    tool = {
        "type": "mcp",
        "server_label": "desk",
        "server_url": f"{api}{PATH}",
        "require_approval": {"never": {"tool_names": ["lookup_order"]}},
    }
    body = {
        "model": "demo",
        "input": _REQUEST,
        "stream": True,
        "outlast": {"approval_mode": "wait"},
        "tools": [tool],
    }
    where = [
        f"  API          {api}/v1",
        f"  Temporal UI  {ui}",
        f"  demo tools   {api}{PATH}  (a support desk: lookup_order, refund_order)",
        f"  models       {models}",
        f"  data         {data_dir}",
    ]
    return _TEXT.format(
        where="\n".join(where),
        api=api,
        body=json.dumps(body),
        tool=json.dumps(tool),
        request=_REQUEST,
        python=_program("python"),
        outlast=_program("outlast"),
        url="" if api == DEFAULT_URL else f" --url {api}",
    )


def _program(name: str) -> str:
    """A program of our environment as a shell takes it; short when it is under the current folder."""
    path = Path(sys.prefix) / "bin" / name
    here = Path.cwd()
    return shlex.quote(str(path.relative_to(here) if path.is_relative_to(here) else path))
