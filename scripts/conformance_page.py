"""Print docs/conformance.md: how to run the suite, and every check of it.

Usage: .venv/bin/python -m scripts.conformance_page > docs/conformance.md
"""

import sys

from outlast.conformance.suite import GROUPS

HEAD = """\
# Conformance

`outlast conformance URL` asks a Responses server what it does and compares that with the specification, the official
SDK's types and recordings of the API: not only ours, any server.

```sh
.venv/bin/outlast conformance http://127.0.0.1:8080
```

Against another server, with its own model and key:

```text
outlast conformance https://api.example.com/v1 --model some-model --api-key-env EXAMPLE_API_KEY
outlast conformance http://127.0.0.1:8000 --model some-model --only MCP,Approvals
```

* A row is `ok`, `FAIL` (what was expected and seen, and where the rule is from) or `-`: the server refuses that part of
  the API by name, which is honest and neither a pass nor a fault.
* The exit code is 0 when nothing failed. `--json` prints the same for programs.
* Checks with tools start an MCP server on this machine, which counts what is called; the server under test must reach
  it (`--mcp-host ADDRESS` when it runs elsewhere).
* What the checks made is deleted at the end, so no question of theirs stays in anybody's inbox. Runs in Temporal stay.
* The model only has to follow plain requests; where a call is needed, `tool_choice` forces it.

This page is generated from the checks; after a change there run
`.venv/bin/python -m scripts.conformance_page > docs/conformance.md`.
"""


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for group in GROUPS:
        parts.append(f"\n## {group.name}\n\n| Check | Claim | Source |\n|---|---|---|\n")
        for check in group.checks:
            claim, source = (text.replace("|", "\\|") for text in (check.claim, check.source))
            parts.append(f"| `{check.name}` | {claim} | {source} |\n")
    return "".join(parts)


if __name__ == "__main__":
    sys.stdout.write(page())
