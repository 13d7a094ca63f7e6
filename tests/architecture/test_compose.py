"""Claims about docker-compose.yml: it parses, and whatever it names exists."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from api.routes import ops
from outlast import cli
from outlast.settings import Settings

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    """The file, anchors resolved."""
    loaded = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    assert isinstance(loaded, dict)
    return loaded


def test_every_image_has_an_exact_tag(compose: dict[str, Any]) -> None:
    """`latest` or a bare major is another program next week."""
    images = {service["image"] for service in compose["services"].values()}
    assert all(re.search(r":\d+\.\d+[\w.-]*$", image) for image in images), images
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert f"outlast:{version}" in images


def test_every_variable_of_ours_is_a_setting(compose: dict[str, Any]) -> None:
    """A misspelt one would be ignored, or refused at start."""
    names = {name for service in compose["services"].values() for name in service.get("environment", {})}
    ours = [name.removeprefix("OUTLAST_").lower().split("__") for name in names if name.startswith("OUTLAST_")]
    assert ours
    for section, *keys in ours:
        value = getattr(Settings(), section)
        for key in keys:
            value = getattr(value, key)


def test_every_dependency_volume_and_file_exists(compose: dict[str, Any]) -> None:
    """Of services on services, of mounts on volumes, of the build on its files."""
    for name, service in compose["services"].items():
        assert set(service.get("depends_on", {})) <= set(compose["services"]), name
        for mount in service.get("volumes", []):
            assert mount.split(":")[0] in compose["volumes"], (name, mount)
        for config in service.get("configs", []):
            assert config["source"] in compose["configs"], (name, config)
            assert config["target"] in service["environment"].values()
    copied = re.findall(r"^COPY (.+) \S+$", (ROOT / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)
    files = {name for line in copied for name in line.split()}
    assert {name for name in files if not (ROOT / name).exists()} == set()
    allowed = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert {f"!{name}" for name in files} <= set(allowed)


def test_ports_are_the_documented_ones_on_the_loopback_address(compose: dict[str, Any]) -> None:
    """Nothing in there asks for a password."""
    published = {port for service in compose["services"].values() for port in service.get("ports", [])}
    defaults = Settings()
    assert published == {
        f"127.0.0.1:{defaults.port}:8080",
        f"127.0.0.1:{defaults.temporal_port}:7233",
        f"127.0.0.1:{defaults.ui_port}:8080",
    }
    assert compose["services"]["api"]["environment"]["OUTLAST_TEMPORAL__ADDRESS"] == "temporal:7233"


def test_api_and_worker_share_store_and_settings(compose: dict[str, Any]) -> None:
    """They are one application: other settings or another file would split it."""
    api, worker = (compose["services"][name] for name in ("api", "worker"))
    assert (api["volumes"], api["environment"]) == (worker["volumes"], worker["environment"])
    assert api["environment"]["OUTLAST_DATA_DIR"] == api["volumes"][0].split(":")[1]


def test_the_commands_of_our_services_are_commands(compose: dict[str, Any]) -> None:
    """As the image's entry point takes them; the API listens where its published port arrives."""
    settings = {
        name: cli._parser().parse_args(compose["services"][name]["command"])
        for name in ("api", "worker")
        if compose["services"][name]["image"].startswith("outlast:")
    }
    assert {name: (given.command, given.host) for name, given in settings.items()} == {
        "api": ("api", "0.0.0.0"),
        "worker": ("worker", None),
    }


def test_the_upstream_of_the_shell_reaches_both_services(compose: dict[str, Any]) -> None:
    """Under the names `outlast` reads; empty counts as not given."""
    given = {name: value for name, value in compose["services"]["worker"]["environment"].items() if "OPENAI" in name}
    assert given == {name: f"${{{name}:-}}" for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY")}


def test_the_health_check_asks_a_path_there_is(compose: dict[str, Any]) -> None:
    """Inside the container, where the API has its default port."""
    said = " ".join(compose["services"]["api"]["healthcheck"]["test"])
    (url,) = re.findall(r"http://[^']+", said)
    assert url == f"http://127.0.0.1:{Settings().port}/healthz"
    assert "/healthz" in {getattr(route, "path", None) for route in ops.router.routes}


def test_temporal_finds_its_database_with_the_password_it_has(compose: dict[str, Any]) -> None:
    """Server and schema tool name the database's service, user and password."""
    services = compose["services"]
    database, server = services["postgresql"]["environment"], services["temporal"]["environment"]
    schema = services["temporal-schema"]
    assert server["POSTGRES_SEEDS"] in services
    assert (server["POSTGRES_USER"], server["POSTGRES_PWD"]) == (
        database["POSTGRES_USER"],
        database["POSTGRES_PASSWORD"],
    )
    assert schema["environment"]["SQL_PASSWORD"] == database["POSTGRES_PASSWORD"]
    tool = f"--ep {server['POSTGRES_SEEDS']} -p {server['DB_PORT']} -u {database['POSTGRES_USER']} "
    assert tool in schema["command"][0]
    for client in ("temporal-namespace", "temporal-ui"):
        assert services[client]["environment"]["TEMPORAL_ADDRESS"] == "temporal:7233"
