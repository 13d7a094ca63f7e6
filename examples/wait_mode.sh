#!/usr/bin/env bash
# Wait mode: a background response that stands still until somebody decides, here from the command line.
set -euo pipefail
cd "$(dirname "$0")/.."
url=${OUTLAST_URL:-http://127.0.0.1:8080}

# One field of the JSON on standard input, given as a Python expression over `it`; empty if it is not there.
field() { .venv/bin/python -c "import json, sys; it = json.load(sys.stdin); print($1)"; }

id=$(curl -sf "$url/v1/responses" -H 'content-type: application/json' -d '{
  "model": "demo", "input": "Refund order 1044", "background": true, "outlast": {"approval_mode": "wait"},
  "tools": [{"type": "mcp", "server_label": "desk", "server_url": "'"$url"'/demo/mcp",
             "require_approval": {"never": {"tool_names": ["lookup_order"]}}}]}' | field 'it["id"]')
echo "response $id is on its way"

ask=
while [ -z "$ask" ]; do
  sleep 0.5
  ask=$(curl -sf "$url/v1/responses/$id" \
    | field '"".join(each["id"] for each in it.get("outlast", {}).get("pending_approvals", []))')
done
.venv/bin/outlast approvals list --url "$url"
echo
.venv/bin/outlast approvals approve "$ask" --url "$url"

# Replay and tail are one stream: from the first event to the last, also if it has ended.
curl -sfN "$url/v1/responses/$id?stream=true" | grep '^event:' | uniq -c
