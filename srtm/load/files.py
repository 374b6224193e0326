"""How many connections this process may have."""

import resource

from srtm.text.errors import UsageError

_OTHER_FILES = 64  # standard streams, epoll, timer, libraries


def raise_file_limit(connections: int) -> None:
    """Allow so many open sockets. Raises UsageError when the hard limit does not."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < needed and soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise UsageError(
            f"{connections} connections need {needed} open files and the limit is {hard}: "
            "raise it (ulimit -Hn) or take fewer publishers"
        )
