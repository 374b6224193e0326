"""What a message's age is made of, by cause and by leg."""

from enum import StrEnum


class Cause(StrEnum):
    """Where the time of a message goes, in order. One ends where the next begins.

    TOKEN_WAIT: from its arrival at the gateway to its token
    GATEWAY:    until nsqd has received it
    BRIDGE:     until the bridge has given it to Kafka's producer (or Kafka's broker has it, where
                the topic has message.timestamp.type=LogAppendTime)
    QUEUE:      until a consumer has it in hand: in nsqd or Kafka, and in the consumer
    PROCESSING: until the consumer's sink has it
    """

    TOKEN_WAIT = "token wait"
    GATEWAY = "gateway"
    BRIDGE = "bridge"
    QUEUE = "queue"
    PROCESSING = "processing"


class Leg(StrEnum):
    """The parts of a journey that have an SLO of their own."""

    BROKER = "broker"
    BRIDGE = "bridge"
    CONSUMER = "consumer"


CAUSES = {
    Leg.BROKER: (Cause.TOKEN_WAIT, Cause.GATEWAY),
    Leg.BRIDGE: (Cause.BRIDGE,),
    Leg.CONSUMER: (Cause.QUEUE, Cause.PROCESSING),
}
