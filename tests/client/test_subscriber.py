"""The subscriber on pynsq: no output buffer at nsqd, messages of a Publisher come at once."""

import asyncio
from collections.abc import Callable
from typing import Any

import nsq
import pytest

from srtm.client import Publisher, subscribe
from srtm.text.errors import UsageError
from tests.support.servers import Servers


def test_a_subscriber_has_no_output_buffer_and_gets_every_message(
    servers: Servers, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="nsq")
    gateway = servers.gateway()
    got: list[bytes] = []

    async def work() -> None:
        enough = asyncio.Event()

        def handler(message: nsq.Message) -> bool:
            got.append(message.body)
            if len(got) == 100:
                enough.set()
            return True

        reader = subscribe("t", "c", handler, nsqd=[gateway.tcp])
        async with Publisher("t", nsqd=gateway.tcp) as publisher:
            for number in range(100):
                await publisher.send(b"%d" % number)
        await enough.wait()
        reader.close()

    asyncio.run(asyncio.wait_for(work(), 30))
    assert sorted(got, key=int) == [b"%d" % number for number in range(100)]
    [answer] = [line for line in caplog.messages if "IDENTIFY received" in line]
    assert "'output_buffer_size': 1, 'output_buffer_timeout': 0" in answer, "as nsqd shows none"


def nothing(message: nsq.Message) -> bool:
    return True


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        pytest.param(lambda: subscribe("t", "c", nothing), "needs nsqd= or lookupd=", id="nobody"),
        pytest.param(
            lambda: subscribe("t", "c", nothing, nsqd=["h:1"], output_buffer_size=64),
            "is what subscribe\\(\\) sets",
            id="a-buffer-of-ones-own",
        ),
    ],
)
def test_a_subscriber_of_no_sense_is_refused(call: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        call()
