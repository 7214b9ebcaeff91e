"""Read the times that a learning management system (LMS) writes into tables, file names and files."""

import re
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

FORMATS = (  # without the day of the week, which is removed first
    "%d %B %Y, %I:%M %p",  # Moodle: 3 March 2026, 10:15 PM
    "%d %B %Y, %H:%M",
    "%B %d, %Y, %I:%M %p",  # Moodle in the United States: March 3, 2026, 10:15 PM
    "%B %d, %Y, %H:%M",
    "%Y-%m-%d %H:%M:%S",  # Gradescope and nbgrader; the time zone is removed first
    "%Y-%m-%d %H:%M:%S.%f",
    "%Y-%m-%d %H:%M",
    "%Y-%m-%d-%H-%M-%S",  # Blackboard
)
MONTHS = (  # in English, German, French and Spanish
    "January Januar janvier enero",
    "February Februar février febrero",
    "March März mars marzo",
    "April April avril abril",
    "May Mai mai mayo",
    "June Juni juin junio",
    "July Juli juillet julio",
    "August August août agosto",
    "September September septembre septiembre",
    "October Oktober octobre octubre",
    "November November novembre noviembre",
    "December Dezember décembre diciembre",
)
WEEKDAYS = (
    "Monday Montag lundi lunes",
    "Tuesday Dienstag mardi martes",
    "Wednesday Mittwoch mercredi miércoles",
    "Thursday Donnerstag jeudi jueves",
    "Friday Freitag vendredi viernes",
    "Saturday Samstag samedi sábado",
    "Sunday Sonntag dimanche domingo",
)
WEEKDAY = re.compile(rf"({'|'.join(' '.join(WEEKDAYS).split())}),? ", re.IGNORECASE)
# For example "3. März 2026" or "3 de marzo de 2026".
DATE = re.compile(r"(?P<day>\d{1,2})\.? (?:de )?(?P<month>[^\W\d_]+) (?:de )?(?P<year>\d{4})")
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
    text = _translate_date(text)
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


def _translate_date(text: str) -> str:
    """Return a time of Moodle without the day of the week, and with the name of the month in English.

    A text without a known day of the week or month does not change.

    >>> _translate_date("Dienstag, 3. März 2026, 22:15")
    '3 March 2026, 22:15'
    """
    weekday = WEEKDAY.match(text)
    text = text[weekday.end() :] if weekday else text
    match = DATE.match(text)
    if match is None:
        return text
    for names in MONTHS:
        english, *_ = names.split()
        if match["month"].casefold() in names.casefold().split():
            return f"{match['day']} {english} {match['year']}{text[match.end() :]}"
    return text


def _find_zone(name: str) -> tzinfo | None:
    """Return the time zone with this name or offset from UTC, or None if it is unknown."""
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
