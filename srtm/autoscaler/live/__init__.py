"""Autoscaling of what runs: a Kafka group, or a pool of NSQ consumers.

A controller looks at its world once an interval: how fast events come, how many wait, who consumes
them. It shows that to a policy, which answers with the group that it wants and why. What the policy
wants is held to `min` and `max`, and then done: the executor launches and ends consumers, and the
world gives work to those who have joined.

    world ── reading ──▶ observation ──▶ policy ──▶ decision ──▶ bounds
      ▲  (monitor.py)    (observe.py)   (adviser.py)                │
      │                                                             ▼
      └── work ── roster.py ◀── joined, gone ── executor ◀── launches, leavers (crew.py)

`controller.py` drives this and has the states of a controller, `world.py` is what it asks of a
world, `kafka_world.py` is a Kafka group and `srtm/autoscaler/pool/world.py` a pool. In a group one
controller leads, and who has which partition is handed over by `direct.py` (word by word),
`planned.py` (Kafka's own leader, by a plan) or `brokered.py` (the broker itself).
"""
