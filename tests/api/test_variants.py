from __future__ import annotations

import pytest

from tests.daemon import Daemon, gguf
from tests.hub.fake_hub import FakeHub


@pytest.fixture(scope="module", autouse=True)
def repository(hub: FakeHub) -> None:
    for name in ("m-Q8_0.gguf", "m-Q4_K_M.gguf", "mmproj-F16.gguf"):
        hub.write("o/Repo-GGUF", name, gguf({}))
    for number in (1, 2):
        hub.write("o/Repo-GGUF", f"F16/m-F16-0000{number}-of-00002.gguf", gguf({}))
    hub.write("o/Repo-GGUF", "mtp-draft.gguf", gguf({}))
    hub.write("o/my-Embedding-GGUF", "m-Q8_0.gguf", gguf({}))
    hub.write("o/empty", "README.md", b"hello")
    hub.write("o/npu", "model.onnx", b"x")
    hub.write("o/npu", "genai_config.json", b"{}")


def test_a_gguf_repository(site: Daemon, hub: FakeHub) -> None:
    size = len(gguf({}))
    answer = site.get("/v1/pull/variants?checkpoint=o/Repo-GGUF").json()
    variants = answer.pop("variants")
    assert answer == {
        "checkpoint": "o/Repo-GGUF",
        "source": "huggingface",
        "recipe": "llamacpp",
        "repo_kind": "gguf",
        "suggested_name": "Repo-GGUF",
        "suggested_labels": ["chat", "vision"],
        "mmproj_files": ["mmproj-F16.gguf"],
        "draft_files": ["mtp-draft.gguf"],
    }
    assert [each["name"] for each in variants] == ["Q4_K_M", "Q8_0", "F16"]
    assert variants[0] == {
        "name": "Q4_K_M",
        "primary_file": "m-Q4_K_M.gguf",
        "files": ["m-Q4_K_M.gguf"],
        "sharded": False,
        "size_bytes": size,
    }
    assert (variants[2]["sharded"], len(variants[2]["files"]), variants[2]["size_bytes"]) == (True, 2, 2 * size)


@pytest.mark.parametrize(
    "checkpoint", ["https://huggingface.co/o/Repo-GGUF", "hf.co/o/Repo-GGUF", "https://hf.co/o/Repo-GGUF/tree/main"]
)
def test_addresses(site: Daemon, checkpoint: str) -> None:
    assert site.get(f"/v1/pull/variants?checkpoint={checkpoint}").json()["checkpoint"] == "o/Repo-GGUF"


def test_other_kinds(site: Daemon) -> None:
    assert site.get("/v1/pull/variants?checkpoint=o/my-Embedding-GGUF").json()["suggested_labels"] == ["embeddings"]
    npu = site.get("/v1/pull/variants?checkpoint=o/npu").json()
    assert (npu["repo_kind"], npu["recipe"], npu["variants"][0]["name"]) == ("onnx-ryzenai", "ryzenai-llm", "default")
    scope = site.get("/v1/pull/variants?checkpoint=o/Repo-GGUF&source=ms").json()
    assert (scope["source"], len(scope["variants"])) == ("modelscope", 3)


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("", 400, "missing_argument"),
        ("?checkpoint=noslash", 400, "invalid_argument"),
        ("?checkpoint=a/b/c", 400, "invalid_argument"),
        ("?checkpoint=../..", 400, "invalid_argument"),
        ("?checkpoint=o/Repo-GGUF&source=nope", 400, "invalid_argument"),
        ("?checkpoint=https://hf.co/o/n&source=modelscope", 400, "invalid_argument"),
        ("?checkpoint=o/nowhere", 404, "repository_not_found"),
        ("?checkpoint=o/nowhere&source=modelscope", 404, "repository_not_found"),
        ("?checkpoint=o/empty", 404, "file_not_found"),
    ],
)
def test_what_is_refused(site: Daemon, query: str, status: int, code: str) -> None:
    answer = site.get(f"/v1/pull/variants{query}")
    assert (answer.status, answer.error["code"]) == (status, code)
