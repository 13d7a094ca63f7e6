"""What a newcomer sees first: where things are, and commands that work as printed."""

import json

from outlast.demo.front import PATH

_REQUEST = "Refund order 1042"


def started(*, api: str, ui: str | None, data_dir: str, models: str) -> str:
    """The text `outlast dev` prints when everything answers. `api`: base URL without `/v1`."""
    tool = {"type": "mcp", "server_label": "desk", "server_url": f"{api}{PATH}", "require_approval": "always"}
    body = json.dumps({"model": "demo", "input": _REQUEST, "tools": [tool]})
    where = [f"  API          {api}/v1"]
    if ui is not None:
        where.append(f"  Temporal UI  {ui}")
    where += [f"  demo tools   {api}{PATH}  (a support desk: lookup_order, refund_order)", f"  models       {models}"]
    where.append(f"  data         {data_dir}")
    return "\n".join(
        [
            "",
            "Outlast is ready.",
            *where,
            "",
            "Try it with curl:",
            "",
            f"  curl -s {api}/v1/responses -H 'content-type: application/json' \\",
            f"    -d '{body}'",
            "",
            "or with the openai package:",
            "",
            f"""  .venv/bin/python - <<'EOF'
  from openai import OpenAI

  client = OpenAI(base_url="{api}/v1", api_key="none")
  tool = {tool!r}
  for event in client.responses.create(model="demo", input="{_REQUEST}", tools=[tool], stream=True):
      print(event.type, getattr(event, "delta", ""))
  EOF""".replace("\n  ", "\n"),
            "",
            "A refund needs a human: see what waits with  .venv/bin/outlast approvals list"
            + ("" if api.endswith(":8080") else f" --url {api}"),
            "Ctrl-C ends everything.",
            "",
        ]
    )
