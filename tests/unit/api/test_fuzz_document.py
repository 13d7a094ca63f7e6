"""Schemathesis over our own OpenAPI document: every operation, with parameters and bodies made from their schemas.

What it adds to `test_fuzz.py`: it finds operations and parameters by itself, so a new route is fuzzed at once.
"""

import asyncio

import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance

from tests.unit.api.conftest import World

_PATIENCE = 30
_CHECKS = [not_a_server_error, status_code_conformance, response_schema_conformance]


@settings(
    max_examples=50,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(data=st.data())
async def test_every_operation_answers_as_the_document_says(open_world: World, data: st.DataObject) -> None:
    """No 5xx, only statuses of the document, refusals with the envelope, in time."""
    document = schemathesis.openapi.from_dict(open_world.app.openapi())
    operations = [found.ok() for found in document.get_all_operations() if isinstance(found, Ok)]
    assert len(operations) == sum(len(each) for each in open_world.app.openapi()["paths"].values())
    operation = data.draw(st.sampled_from(operations), label="operation")
    case = data.draw(operation.as_strategy(), label="case")
    if data.draw(st.booleans(), label="of something that is there"):
        known = await _known(open_world)
        case.path_parameters.update({name: known[name] for name in case.path_parameters if name in known})
    async with asyncio.timeout(_PATIENCE):
        answer = await asyncio.to_thread(case.call, base_url=open_world.url)
    case.validate_response(answer, checks=_CHECKS)


async def _known(world: World) -> dict[str, str]:
    """Path parameters that lead to something."""
    response = (await world.http.post("/v1/responses", json={"model": "demo", "input": "hi"})).json()
    [item] = (await world.http.get(f"/v1/responses/{response['id']}/input_items")).json()["data"]
    conversation = (await world.http.post("/v1/conversations", json={"items": [item]})).json()
    ids = {"response_id": response["id"], "conversation_id": conversation["id"], "model": "demo"}
    return {**ids, "item_id": item["id"]}
