"""An API process is SIGKILLed while a client waits for its answer; the client asks another one again."""

import asyncio

import pytest
from openai import APIConnectionError, AsyncOpenAI

from tests.chaos.world import PAID, World
from tests.support.stack import Process


async def test_a_request_sent_again_after_its_api_died_is_the_same_run(outlast: World) -> None:
    """With its key, and as a marked retry: one response, one payment, two model calls.

    Fails without `if retried: ...` in `api.repeats._made`: the retry pays again.
    """
    await outlast.work()
    outlast.model.hold(2, after=b"response.output_text.delta")
    api = await Process.start("api", outlast.given)
    try:
        url = (await api.line(r"serves (\S+)/v1")).group(1)
        request = {"model": "clerk", "input": "Please pay 17", "tools": [outlast.office("pay_bill")]}
        async with AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
            asking = asyncio.create_task(
                client.post("/responses", body=request, cast_to=object, options={"headers": {"Idempotency-Key": "17"}})
            )
            await outlast.model.until(lambda model: len(model.requests) == 2)
            await api.kill()
            with pytest.raises(APIConnectionError):
                await asking
    finally:
        await api.kill()
    outlast.model.release()
    here = outlast.served.client
    again = [
        await here.responses.create(**request, extra_headers=headers)  # type: ignore[call-overload]  # a plain dict
        for headers in ({"Idempotency-Key": "17"}, {"x-stainless-retry-count": "1"})
    ]
    assert again[0].to_dict() == again[1].to_dict()
    assert again[0].status == "completed"
    assert [item.output for item in again[0].output if item.type == "mcp_call"] == [PAID]
    assert len(outlast.mcp.calls) == 1
    assert len(outlast.model.requests) == 2
