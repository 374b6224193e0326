"""The error texts with which a topic refuses a run: what is wrong, and what to do. No I/O."""

from srtm.limits.contract import Limit


def over_limit(topic: bytes, limit: Limit, seconds: float) -> str:
    """seconds: until its tokens are there"""
    return (
        f"over the limit of topic {topic.decode()} ({limit.rate:g}/s, burst"
        f" {limit.burst:g}); tokens in {seconds:.3f}s"
    )


def over_share(topic: bytes, limit: Limit, count: int) -> str:
    """A batch of `count` messages that this broker's share never admits."""
    whole = limit.contract_burst or limit.burst
    return (
        f"a batch of {count} is over this broker's share of topic {topic.decode()}"
        f" (burst {limit.burst:g} of {whole:g}): send at most {int(limit.burst)} at once,"
        f" or state batch={count} in the contract, of which each broker then needs a"
        f" burst of {count}; batches=each lets it go at once, and promises less"
    )


def placed_elsewhere(topic: bytes) -> str:
    """The topic has a contract, and no share of it here."""
    return (
        f"topic {topic.decode()} has no share of its contract on this broker: publish where"
        " the Load Distributor places it"
    )
