"""A request with the openai package: streamed, then continued, then read again from the middle of its events."""

import os

from openai import OpenAI

client = OpenAI(base_url=os.environ.get("OUTLAST_URL", "http://127.0.0.1:8080") + "/v1", api_key="none")

stream = client.responses.create(model="demo", input="Tell me a story.", stream=True)
for event in stream:
    if event.type == "response.output_text.delta":
        print(event.delta, end="", flush=True)
    elif event.type == "response.completed":
        first = event.response
print()

second = client.responses.create(model="demo", input="And another one.", previous_response_id=first.id)
print(second.output_text)

# Every event of a stored response has a number; a reader that was cut off goes on after the last one it has.
for event in client.responses.retrieve(first.id, stream=True, starting_after=5):
    print(event.sequence_number, event.type)
