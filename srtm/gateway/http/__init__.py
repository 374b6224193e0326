"""The gateway's HTTP doors: nsqd's API, /stats, /metrics and the admin socket."""
