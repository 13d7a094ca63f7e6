"""The HTTP transport: framing, pool and back-pressure, through an httpx client."""

import asyncio
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from outlast.upstream import http
from outlast.upstream.transport import Transport
from tests.unit.upstream.server import SSE_HEAD, Answer, Exchange, Served, replying, serving


@asynccontextmanager
async def client(answer: Answer) -> AsyncGenerator[tuple[httpx.AsyncClient, Served]]:
    """A client on our transport and the server it talks to."""
    async with (
        serving(answer) as served,
        httpx.AsyncClient(transport=Transport(None), base_url=served.base_url) as client,
    ):
        yield client, served


def raw(*sent: bytes, close: bool = False) -> Answer:
    """An answer in these bytes."""

    async def answer(exchange: Exchange) -> None:
        for data in sent:
            await exchange.send(data)
        if close:
            exchange.writer.close()

    return answer


@pytest.mark.parametrize(
    "answer",
    [
        replying("200 OK", b"hello", kind="text/plain"),
        raw(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"),
        raw(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nhello", close=True),
        raw(b"HTTP/1.1 100 Continue\r\nx: y\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"),
    ],
    ids=["length", "chunked", "until close", "after 100"],
)
async def test_a_body_is_read_in_every_framing(answer: Answer) -> None:
    """By length, in chunks, until the connection ends; an interim answer precedes nothing but the real one."""
    async with client(answer) as (http_client, _):
        response = await http_client.post("/x", content=b"body")
        assert (response.status_code, response.text, "x" in response.headers) == (200, "hello", False)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (raw(close=True), httpx.ReadError),
        (raw(b"HTTP/1.1 200 OK\r\ncontent-le", close=True), httpx.ReadError),
        (raw(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhello", close=True), httpx.ReadError),
        (raw(SSE_HEAD, b"5\r\nhello\r\n", close=True), httpx.ReadError),
        (raw(b"SSH-2.0-OpenSSH_9.2\r\n\r\n"), httpx.RemoteProtocolError),
        (raw(SSE_HEAD, b"nonsense\r\n"), httpx.RemoteProtocolError),
    ],
    ids=["nothing", "half a head", "half a body", "no last chunk", "no http", "no chunk"],
)
async def test_an_answer_that_breaks_off_is_an_error(answer: Answer, kind: type[httpx.TransportError]) -> None:
    """Never a shorter answer."""
    async with client(answer) as (http_client, _):
        with pytest.raises(kind):
            await http_client.get("/x")


async def test_a_connection_is_used_again_only_after_a_whole_answer() -> None:
    """Not after one that was left, nor when the server wants to close."""
    replies = [
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\na",  # kept
        b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nb",  # left by the reader
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\nconnection: close\r\n\r\nc",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nd",
    ]

    async def answer(exchange: Exchange) -> None:
        await exchange.send(replies.pop(0))

    async with client(answer) as (http_client, served):
        assert (await http_client.get("/1")).text == "a"
        async with http_client.stream("GET", "/2") as response:
            assert await anext(response.aiter_bytes()) == b"b"
        assert served.connections == 1
        assert (await http_client.get("/3")).text == "c"
        assert (await http_client.get("/4")).text == "d"
        assert served.connections == 3


async def test_a_connection_the_server_closed_meanwhile_is_not_used() -> None:
    """The close is seen by the loop; the next request gets a new connection instead of an error."""
    async with client(replying("200 OK", b"a")) as (http_client, served):
        await http_client.get("/1")
        writer = served.exchanges[0].writer
        writer.close()
        await writer.wait_closed()
        await asyncio.wait_for(served.left.wait(), 30)
        assert (await http_client.get("/2")).text == "a"
        assert served.connections == 2


async def test_requests_at_once_have_connections_of_their_own() -> None:
    """One exchange at a time on each."""
    both = asyncio.Barrier(2)

    async def answer(exchange: Exchange) -> None:
        await both.wait()
        await exchange.send(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\na")

    async with client(answer) as (http_client, served):
        responses = await asyncio.gather(http_client.get("/1"), http_client.get("/2"))
        assert ([response.text for response in responses], served.connections) == (["a", "a"], 2)


async def test_a_read_joins_all_chunks_that_have_arrived() -> None:
    """HTTP chunk borders mean nothing."""
    answer = raw(SSE_HEAD + b"1\r\na\r\n1\r\nb\r\n1\r\nc\r\n0\r\n\r\n")
    async with client(answer) as (http_client, _), http_client.stream("GET", "/x") as response:
        assert [data async for data in response.aiter_bytes()] == [b"abc"]


async def test_a_slow_reader_stops_the_server() -> None:
    """What waits in memory is bounded, and nothing is lost."""
    size = 16 << 20

    async def answer(exchange: Exchange) -> None:
        await exchange.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size)
        for _ in range(256):
            await exchange.send(bytes(size // 256))

    async with client(answer) as (http_client, _), http_client.stream("GET", "/x") as response:
        reads = []
        async for data in response.aiter_bytes():
            reads.append(len(data))
            for _ in range(100):  # the loop goes on reading while nobody takes anything
                await asyncio.sleep(0)
        assert sum(reads) == size
        assert max(reads) <= 2 << 20


def certificate(folder: Path) -> Path:
    """A self-signed certificate for localhost with its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    built = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    file = folder / "cert.pem"
    pem, none = serialization.Encoding.PEM, serialization.NoEncryption()
    file.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, none) + built.public_bytes(pem))
    return file


async def test_https_is_verified(tmp_path: Path) -> None:
    """A certificate we trust works, one we do not is a failed connection."""
    file = certificate(tmp_path)
    ours = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    ours.load_cert_chain(file)
    async with serving(replying("200 OK", b"a"), tls=ours) as served:
        url = served.base_url.replace("http://127.0.0.1", "https://localhost")
        async with httpx.AsyncClient(transport=Transport(ssl.create_default_context(cafile=file))) as trusting:
            assert (await trusting.get(url)).text == "a"
        async with httpx.AsyncClient(transport=Transport(ssl.create_default_context())) as strict:
            with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
                await strict.get(url)


def test_uvloop_serves_as_well() -> None:
    """Its transports are not those of asyncio by inheritance, and production runs on it."""

    async def round_trip() -> list[str]:
        async with client(replying("200 OK", b"a")) as (http_client, _):
            return [(await http_client.get("/x")).text for _ in range(2)]

    assert uvloop.run(round_trip()) == ["a", "a"]


@pytest.mark.parametrize(
    ("environment", "ours"),
    [
        ({}, True),
        ({"http_proxy": "http://proxy:1"}, False),
        ({"all_proxy": "http://proxy:1"}, False),
        ({"https_proxy": "http://proxy:1"}, True),
        ({"http_proxy": "http://proxy:1", "no_proxy": "models"}, True),
    ],
)
async def test_a_proxy_of_the_environment_is_left_to_httpx(
    environment: dict[str, str], ours: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ours knows none."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert isinstance(http._transport(httpx.URL("http://models/v1")), Transport) is ours
