"""How an executor tells a consumer which launch it is: variables of its environment."""

LAUNCH = "SRTM_LAUNCH"
"""Its id: the client id at nsqd, and the launch in what a member of a Kafka group reports."""
GROUP = "SRTM_GROUP"
"""The group or pool that a consumer is launched for: by it an executor finds what it launched
before."""
