"""Read the times that a learning management system (LMS) writes into tables, file names and files."""

import re
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

FORMATS = (  # without the day of the week, which is removed before
    "%d %B %Y, %I:%M %p",  # Moodle: 3 March 2026, 10:15 PM
    "%d %B %Y, %H:%M",
    "%B %d, %Y, %I:%M %p",  # Moodle in the United States: March 3, 2026, 10:15 PM
    "%B %d, %Y, %H:%M",
    "%Y-%m-%d %H:%M:%S",  # Gradescope and nbgrader, whose time zone is removed before
    "%Y-%m-%d %H:%M:%S.%f",
    "%Y-%m-%d %H:%M",
    "%Y-%m-%d-%H-%M-%S",  # Blackboard
)
ZONE = r"(?P<time>\d{4}-.*\d) ?(?P<zone>[+-]\d\d:?\d\d|[A-Za-z]+(/[\w+-]+)*)$"


def parse_time(text: str) -> float | None:
    """Return a time in seconds since 1970, or None if it cannot be read.

    A time without a time zone is in the time zone of this computer, as is the due date of an assignment.

    >>> parse_time("2026-03-03 22:15:00 UTC")
    1772576100.0
    >>> parse_time("3/3/26") is None
    True
    """
    text = re.sub(r"(?<=\d)T(?=\d)|\s+", " ", text.strip())
    text = re.sub(r"^[A-Za-z]+day, ", "", text)
    match = re.match(ZONE, text)
    zone = _find_zone(match["zone"]) if match else None
    if match and zone is None:
        return None
    time_text = match["time"] if match else text
    for time_format in FORMATS:
        try:
            return datetime.strptime(time_text, time_format).replace(tzinfo=zone).timestamp()
        except (ValueError, OverflowError):
            continue
    return None


def _find_zone(name: str) -> tzinfo | None:
    """Return the time zone with this name or distance from UTC, or None if it is unknown."""
    if name == "UTC":
        return UTC
    try:
        if name[0] in "+-":
            return datetime.strptime(name, "%z").tzinfo
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):  # `ZoneInfo` raises KeyError for an unknown name.
        return None


def parse_duration(text: str) -> float | None:
    """Return the seconds of a duration such as "26:59:59", or None if it cannot be read.

    >>> parse_duration("26:00:01")
    93601.0
    """
    match = re.fullmatch(r"(\d+):(\d\d):(\d\d)", text)
    if match is None:
        return None
    hours, minutes, seconds = map(int, match.groups())
    return timedelta(hours=hours, minutes=minutes, seconds=seconds).total_seconds()
