"""Every endpoint keeps to what `/openapi.json` says of it, whatever it is sent."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings, strategies
from schemathesis import APIOperation, BaseSchema, Case, GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from lemonade.api.endpoint import Endpoint
from lemonade.api.lemonade.configuration import SHUTDOWN
from lemonade.api.table import ENDPOINTS
from tests.api.text_world import add_models
from tests.daemon import Daemon

RERANKING = ("/v1/rerank", "/v1/reranking", "/v1/reranker")
#: A model of the right kind for each endpoint.
MODELS = {"other": "a", "/v1/embeddings": "vectors", **dict.fromkeys(RERANKING, "ranks")}
CHECKS = [status_code_conformance, content_type_conformance, response_schema_conformance]

#: What a daemon may answer with a 5xx although nothing is wrong with it: it is told to load what it cannot.
EXPECTED = {"model_load_error", "lemond_offline", "backend_unavailable"}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    one = Daemon(tmp_path_factory.mktemp("daemon"), config={"offline": True}, switches={"tokens": 2})
    one.add_model("a")
    with one:
        add_models(one)
        yield one


@pytest.fixture(scope="module")
def api(daemon: Daemon) -> BaseSchema:
    return schemathesis.openapi.from_url(f"{daemon.url}/openapi.json")


@pytest.mark.parametrize("endpoint", [one for one in ENDPOINTS if one is not SHUTDOWN], ids=lambda one: one.id)
def test_answers_are_as_documented(daemon: Daemon, api: BaseSchema, endpoint: Endpoint) -> None:
    operation = api[endpoint.paths[0]][endpoint.method]
    cases = [operation.as_strategy(generation_mode=mode) for mode in generated(operation)]

    @settings(max_examples=30, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(case=strategies.one_of(cases))
    def ask(case: Case) -> None:
        use_a_model_that_is_there(case)
        if isinstance(case.body, dict) and {"host", "port"} & case.body.keys():
            return  # The daemon would move away.
        response = case.call(timeout=30)
        if response.status_code >= 500:
            error = response.json()["error"]
            assert {error["type"], error.get("code")} & EXPECTED, response.text
        case.validate_response(response, checks=CHECKS)

    ask()
    assert daemon.get("/live").status == 200


def generated(operation: APIOperation) -> list[GenerationMode]:
    """Requests as the document wants them, and, where it says anything of them, others."""
    takes_anything = not operation.body and not operation.query and not operation.path_parameters
    return [GenerationMode.POSITIVE] if takes_anything else [GenerationMode.POSITIVE, GenerationMode.NEGATIVE]


def use_a_model_that_is_there(case: Case) -> None:
    """Names made up at random would never come further than the first look-up."""
    if isinstance(case.body, dict) and case.path != "/v1/delete":
        for key in ("model", "model_name"):
            if isinstance(case.body.get(key), str):
                case.body[key] = MODELS.get(case.path, MODELS["other"])
    if "id" in case.path_parameters and case.path == "/v1/models/{id}" and len(str(case.path_parameters["id"])) % 2:
        case.path_parameters["id"] = "a"
