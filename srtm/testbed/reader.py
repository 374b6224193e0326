"""Subscribers that ask for messages and read none: nsqd and gateway fill their buffers for them."""

import argparse
import contextlib
import math
import signal

from srtm.host.stop import Stop
from srtm.nsq.blocking import Blocking
from srtm.nsq.commands import rdy, sub

_MANY = 2500
"""nsqd's --max-rdy-count"""


def main() -> None:
    parser = argparse.ArgumentParser(description="subscribe and do not read")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--channel", required=True)
    parser.add_argument("address", nargs="+")
    given = parser.parse_args()
    stop = Stop()
    stop.heed(signal.SIGTERM)
    with contextlib.ExitStack() as stack:
        identity = {"client_id": "slow-reader", "heartbeat_interval": 60000}
        for each in given.address:
            link = stack.enter_context(Blocking(each, identity))
            link.write(sub(given.topic.encode(), given.channel.encode()) + rdy(_MANY))
        print("subscribed", flush=True)
        stop.wait(math.inf)


if __name__ == "__main__":
    main()
