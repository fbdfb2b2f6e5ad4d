"""Speech by the real engine, through the daemon."""

from __future__ import annotations

import base64
import http.client
import io
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import av
import numpy as np
import psutil
import pytest

from tests.daemon import Daemon, wait_for
from tests.hearing import SENTENCES, Listener, word_errors
from tests.kokoro import kokoro

pytestmark = pytest.mark.real

SHORT = "Hello there, my friend."
LONG = " ".join(f"Here is sentence number {number}." for number in range(1, 11))
#: One sentence that is longer than it should be, and one in a script without gaps.
ENDLESS = "nobody told this person where a sentence could end and so it goes on and on without a rest " * 3
CHINESE = "今天天气很好我们一起去公园散步然后再去吃饭看电影买东西回家休息睡觉明天还要上班" * 2
MEDIA_TYPES = {
    "mp3": "audio/mpeg",
    "opus": "audio/opus",
    "aac": "audio/aac",
    "flac": "audio/flac",
    "wav": "audio/wav",
    "pcm": "audio/l16;rate=24000;endianness=little-endian",
}


@pytest.fixture(scope="module")
def speaker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon with the model `speaker`, and `a`, which does not speak."""
    daemon = Daemon(tmp_path_factory.mktemp("speaker"))
    daemon.add_model("a")
    with daemon:
        definition = {"model_name": "user.speaker", "recipe": "kokoro", "checkpoint": str(kokoro())}
        assert daemon.post("/v1/models/register", definition).status == 200
        yield daemon


@pytest.fixture(scope="module")
def listener() -> Listener:
    return Listener()


def speak(daemon: Daemon, text: str = SHORT, **more: Any) -> Any:
    return daemon.post("/v1/audio/speech", {"model": "speaker", "input": text, **more})


def seconds(data: bytes) -> float:
    with av.open(io.BytesIO(data)) as container:
        frames = list(container.decode(audio=0))
    return sum(frame.samples for frame in frames) / frames[0].sample_rate


@contextmanager
def opened(daemon: Daemon, text: str, **more: Any) -> Iterator[http.client.HTTPResponse]:
    """A streamed answer whose head has come. Leaving hangs up."""
    connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=100)
    try:
        body = json.dumps({"model": "speaker", "input": text, "stream": True, **more})
        connection.request("POST", "/v1/audio/speech", body, {"Content-Type": "application/json"})
        with connection.getresponse() as answer:
            yield answer
    finally:
        connection.close()


def test_every_format_lasts_equally_long_and_has_its_type(speaker: Daemon) -> None:
    answers = {form: speak(speaker, response_format=form) for form in MEDIA_TYPES}
    assert {form: answer.headers["content-type"] for form, answer in answers.items()} == MEDIA_TYPES
    wanted = len(answers["pcm"].body) / 48_000
    assert 1 < wanted < 3
    for form, answer in answers.items():
        if form != "pcm":
            assert seconds(answer.body) == pytest.approx(wanted, abs=0.12), form


def test_mp3_is_usual_and_whole(speaker: Daemon) -> None:
    answer = speak(speaker)
    assert answer.headers["content-type"] == "audio/mpeg"
    assert answer.headers["content-length"] == str(len(answer.body))


def test_twice_as_fast_is_half_as_long(speaker: Daemon) -> None:
    lengths = {speed: len(speak(speaker, response_format="pcm", speed=speed).body) for speed in (0.5, 1.0, 2.0, 4.0)}
    for speed, length in lengths.items():
        assert length * speed == pytest.approx(lengths[1.0], rel=0.15), speed


def test_voices_differ_and_names_of_openai_are_theirs(speaker: Daemon) -> None:
    sounds = {
        voice: speak(speaker, response_format="pcm", voice=voice).body
        for voice in ("af_heart", "bm_george", "shimmer", "af_heart+bm_george")
    }
    assert sounds["af_heart"] == sounds["shimmer"] == speak(speaker, response_format="pcm", voice=None).body
    assert len(set(sounds.values())) == 3


@pytest.mark.parametrize(
    ("text", "voice"),
    [
        ("Buongiorno, come stai?", "if_sara"),
        ("Bonjour, comment ça va?", "ff_siwis"),
        ("¿Qué tal, amigo?", "em_alex"),
        ("Olá, tudo bem?", "pm_alex"),
        ("नमस्ते दोस्त", "hm_omega"),
        ("こんにちは", "jf_alpha"),
        ("你好朋友", "zf_xiaobei"),
        ("Dr. Who paid $5.20 🎉 for привет & 你好!", "af_bella"),
    ],
)
def test_languages_and_mixtures_of_them(speaker: Daemon, text: str, voice: str) -> None:
    answer = speak(speaker, text, voice=voice, response_format="pcm")
    assert answer.status == 200
    sound = np.frombuffer(answer.body, "<i2")
    assert len(sound) > 12_000
    assert np.abs(sound).max() > 2_000


@pytest.mark.parametrize(("text", "voice"), [(LONG, "af_heart"), (ENDLESS, "af_heart"), (CHINESE, "zf_xiaobei")])
def test_a_stream_is_heard_before_a_third_is_made(speaker: Daemon, text: str, voice: str) -> None:
    with opened(speaker, text, voice=voice) as answer:
        assert answer.status == 200
        assert answer.getheader("content-type") == MEDIA_TYPES["pcm"]
        assert answer.getheader("transfer-encoding") == "chunked"
        first = answer.read1(1 << 20)
        begun = len(first)
        whole = first + answer.read()
    assert 0 < begun < len(whole) / 3
    assert len(whole) / 48_000 > 10


@pytest.mark.parametrize(("form", "begins"), [("wav", b"RIFF\xff\xff\xff\xff"), ("mp3", b"ID3"), ("opus", b"OggS")])
def test_other_formats_are_streamed_too(speaker: Daemon, form: str, begins: bytes) -> None:
    with opened(speaker, "One sentence is here. Another sentence is here.", response_format=form) as answer:
        assert answer.getheader("content-type") == MEDIA_TYPES[form]
        first = answer.read1(1 << 20)
        rest = answer.read()
    assert first.startswith(begins)
    assert rest
    assert seconds(first + rest) > 2


def test_streams_are_pcm_unless_something_else_is_said(speaker: Daemon) -> None:
    for more in ({"stream": True}, {"stream_format": "audio"}):
        assert speak(speaker, **more).headers["content-type"] == MEDIA_TYPES["pcm"]
    assert speak(speaker, stream_format="audio", response_format="aac").headers["content-type"] == "audio/aac"


def test_events(speaker: Daemon) -> None:
    answer = speak(speaker, "One sentence is here. Another sentence is here.", stream_format="sse")
    assert answer.headers["content-type"] == "text/event-stream"
    events = [json.loads(block.removeprefix("data: ")) for block in answer.body.decode().strip().split("\n\n")]
    assert {event["type"] for event in events[:-1]} == {"speech.audio.delta"}
    assert events[-1]["type"] == "speech.audio.done"
    assert set(events[-1]["usage"]) == {"input_tokens", "output_tokens", "total_tokens"}
    sound = b"".join(base64.b64decode(event["audio"]) for event in events[:-1])
    assert sound == speak(speaker, "One sentence is here. Another sentence is here.", stream=True).body


@pytest.mark.parametrize(
    ("more", "param", "says"),
    [
        ({"voice": "nobody"}, "voice", "af_heart"),
        ({"voice": "nobody", "stream": True}, "voice", "shimmer"),
        ({"voice": ""}, "voice", "af_heart"),
        ({"input": "🎉 🎉"}, "input", "nothing that can be spoken"),
        ({"input": "...", "stream": True}, "input", "nothing that can be spoken"),
        ({"input": f"{'こんにちは。' * 20}日本", "voice": "jf_alpha", "stream": True}, "input", "pyopenjtalk-plus"),
    ],
)
def test_mistakes_that_only_the_engine_sees(speaker: Daemon, more: dict[str, Any], param: str, says: str) -> None:
    answer = speak(speaker, **more)
    assert answer.status == 400
    assert answer.error["code"] == "invalid_argument"
    assert answer.error["param"] == param
    assert says in answer.error["message"]


def test_a_listener_who_leaves_does_not_hold_up_the_next(speaker: Daemon) -> None:
    speak(speaker)
    with opened(speaker, LONG * 20) as left:
        left.read1(100)
    wait_for(lambda: not speaker.entry("speaker")["is_busy"], seconds=60)
    assert speak(speaker).status == 200


@pytest.mark.parametrize(("stream", "size"), [(True, 60), (False, 180)])
def test_a_listener_who_leaves_in_a_sentence_ends_the_work_at_it(speaker: Daemon, stream: bool, size: int) -> None:
    """What is measured is work, not time: all that is done for one who left is less than one piece takes."""
    speak(speaker)
    process = psutil.Process(speaker.entry("speaker")["pid"])

    def work() -> float:
        times = process.cpu_times()
        return times.user + times.system

    before = work()
    speak(speaker, ENDLESS[:size])
    piece, before = work() - before, work()
    connection = http.client.HTTPConnection("127.0.0.1", speaker.port, timeout=100)
    body = json.dumps({"model": "speaker", "input": ENDLESS * 3, "stream": stream})
    connection.request("POST", "/v1/audio/speech", body, {"Content-Type": "application/json"})
    wait_for(lambda: work() > before + piece / 20)
    connection.close()
    wait_for(lambda: not speaker.entry("speaker")["is_busy"])
    seen = [work()]
    while len(seen) < 3 or seen[-1] > seen[-3]:
        time.sleep(0.3)
        seen.append(work())
    assert seen[-1] - before < piece


def test_a_listener_who_does_not_read_does_not_hold_up_the_next(speaker: Daemon) -> None:
    with opened(speaker, LONG * 60) as slow:
        assert slow.read1(100)
        assert speak(speaker).status == 200
        assert speaker.entry("speaker")["is_streaming"]


def test_several_at_once_get_what_is_theirs(speaker: Daemon) -> None:
    texts = [f"The {number}." for number in ("first", "second", "third")]
    alone = [speak(speaker, text, response_format="pcm").body for text in texts]
    with ThreadPoolExecutor(3) as pool:
        together = list(pool.map(lambda text: speak(speaker, text, stream=True).body, texts))
    assert together == alone
    assert len(set(alone)) == 3


def test_an_engine_that_dies_in_a_stream_cuts_it_off(speaker: Daemon) -> None:
    speak(speaker)
    with opened(speaker, LONG * 10) as answer:
        answer.read1(100)
        os.kill(speaker.entry("speaker")["pid"], signal.SIGKILL)
        with pytest.raises((http.client.IncompleteRead, ConnectionError)):
            while answer.read1(1 << 16):
                pass
    assert speak(speaker).status == 200


def test_an_engine_that_dies_before_the_first_sound_is_started_anew(speaker: Daemon) -> None:
    speak(speaker)
    pid = speaker.entry("speaker")["pid"]
    os.kill(pid, signal.SIGSTOP)
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(speak(speaker)))
    thread.start()
    time.sleep(0.5)
    os.kill(pid, signal.SIGKILL)
    thread.join(60)
    assert answers[0].status == 200
    assert speaker.entry("speaker")["pid"] != pid


def test_the_voices_are_those_of_the_files(speaker: Daemon) -> None:
    answer = speaker.get("/v1/audio/voices?model=speaker").json()
    found = {one["id"]: one for one in answer["voices"]}
    assert answer["model"] == "speaker"
    assert len(found) == 54 + 13
    assert found["bf_emma"] == {"id": "bf_emma", "name": "Emma", "language": "en-GB", "gender": "female"}
    assert found["shimmer"]["stands_for"] == "af_heart"
    usual = speaker.get("/v1/audio/voices").json()
    assert usual["voices"] == answer["voices"]


def test_models_that_do_not_speak_have_no_voices(speaker: Daemon) -> None:
    answer = speaker.get("/v1/audio/voices?model=a")
    assert (answer.status, answer.error["code"]) == (400, "model_not_applicable")


@pytest.mark.parametrize("voice", ["af_heart", "bf_emma"])
def test_what_is_said_is_understood(speaker: Daemon, listener: Listener, voice: str) -> None:
    errors = words = 0
    for sentence in SENTENCES[1:3]:
        wrong, said = word_errors(
            sentence, listener.hear(speak(speaker, sentence, voice=voice, response_format="pcm").body)
        )
        errors, words = errors + wrong, words + said
    assert errors / words <= 0.1


def test_numbers_and_short_forms_are_said_in_words(speaker: Daemon, listener: Listener) -> None:
    heard = listener.hear(
        speak(speaker, "Dr. Smith lives on Main St. with 2 dogs.", response_format="pcm").body
    ).lower()
    assert "smith" in heard
    assert "street" in heard or "main st" in heard
    assert "two" in heard or "2" in heard
    assert "d r" not in heard


def test_health_calls_it_what_it_is(speaker: Daemon) -> None:
    speak(speaker)
    entry = speaker.entry("speaker")
    assert (entry["type"], entry["recipe"], entry["device"]) == ("tts", "kokoro", "cpu")
