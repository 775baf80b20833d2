"""Schedules: lists of hours and turns; when somebody is on, who comes before whom, whose turn is next, what time is next."""

from __future__ import annotations

import itertools
import re

from crucible.ari.exam.dice import Dice
from crucible.ari.exam.family import Family, Spans, quiz

CATEGORY = "schedules"


def _clock(minutes: int) -> str:
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


def _hours(dice: Dice, count: int) -> list[str]:
    """Distinct times of a day, in order, on the five minutes."""
    return [_clock(minutes) for minutes in sorted(dice.sample(range(6 * 60, 22 * 60, 5), count))]


# --- when somebody begins, two questions to a list --------------------------------------------------------------------

_ENTRY = (
    "{hour} lesson {room}: the {thing}, with {who}",
    "{who} has the {thing} hour from {hour} on.",
    "{who} | {thing} | {hour} | room {room}",
)
_WHEN = ("{who} begins at ", "Nobody should disturb {who} after ", "time for {who} = ")


def _time(dice: Dice, template: int) -> Spans:
    hours, people, things = _hours(dice, 6), dice.names(6), dice.english("things", 6)
    lines = [
        _ENTRY[template].format(hour=hour, who=who, thing=thing, room=dice.between(2, 9))
        for hour, who, thing in zip(hours, people, things, strict=True)
    ]
    asked = [(_WHEN[template].format(who=people[place]), hours[place]) for place in dice.sample(range(6), 4)]
    return quiz("\n".join(lines) + "\n\n", asked, 2, ".\n")


def _solve_time(prompt: str) -> set[str]:
    listed, asked = prompt.split("\n\n")
    people = set(re.findall(r"[A-Z]\w+", asked.split("\n")[-1])) - {"Nobody"}
    return {
        hour
        for line in listed.split("\n")
        for hour in re.findall(r"\d\d:\d\d", line)
        if people & set(re.findall(r"\w+", line))
    }


# --- who comes right before or right after ----------------------------------------------------------------------------

_TURN = (
    "{hour} {who} (with the {thing})",
    "{who}, second {thing}, {hour}",
    "At {hour} {who} takes over, with the {thing}.",
)
_BESIDE = (
    "Right before {who} it is the turn of ",
    "Next one after {who}: ",
    "The watch of {who} ends with the coming of ",
)


def _beside(dice: Dice, template: int) -> Spans:
    hours, people, things = _hours(dice, 7), dice.names(7), dice.english("things", 7)
    lines = [
        _TURN[template].format(hour=hour, who=who, thing=thing)
        for hour, who, thing in zip(hours, people, things, strict=True)
    ]
    step = -1 if template == 0 else 1
    asked = [
        (_BESIDE[template].format(who=people[place]), people[place + step]) for place in dice.sample(range(1, 6), 4)
    ]
    return quiz("\n".join(lines) + "\n\n", asked, 2, ".\n")


def _solve_beside(prompt: str) -> set[str]:
    listed, asked = prompt.split("\n\n")
    people = [re.findall(r"\b[A-Z][a-z]{4}\b", line)[0] for line in listed.split("\n")]
    question = asked.split("\n")[-1]
    step = -1 if "before" in question else 1
    return {people[place + step] for place, who in enumerate(people) if re.search(rf"\b{who}\b", question)}


# --- whose turn it is -------------------------------------------------------------------------------------------------

_DAY = ("day {n}: {a} cooks", "{n}. gate {b}, wall {a}", "{day}: {a} on duty")
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def _rota(dice: Dice, template: int) -> Spans:
    people, others = dice.names(dice.between(4, 6)), dice.names(3)
    count, first = len(people), dice.between(1, 60)
    length = dice.between(3 * count, 4 * count)
    lines = [
        _DAY[template].format(n=first + i, day=_DAYS[(first + i) % 7], a=people[i % count], b=others[i % 3])
        for i in range(length)
    ]
    answer = people[(length - 1) % count]
    text = "\n".join(lines)
    return [("Rota:\n" + text[: text.rindex(answer)], answer)]


def _solve_rota(prompt: str) -> set[str]:
    """The shortest cycle that the asked column keeps; a cycle must have been seen twice."""
    _, *lines = prompt.split("\n")
    column = [re.findall(r"\b[A-Z][a-z]{4}\b", line)[-1] for line in lines[:-1]]
    for period in range(1, len(column) // 2 + 1):
        if all(a == b for a, b in zip(column, column[period:], strict=False)):
            return {column[len(column) - period]}
    return set()


# --- times at equal distances -----------------------------------------------------------------------------------------

_GAPS = (4, 5, 6, 8, 10, 12, 15, 18, 20, 25, 30)


def _interval(dice: Dice, template: int) -> Spans:
    stops = dice.names(9)
    if template == 2:  # one duration for all
        gap = dice.pick(_GAPS) + 5 * dice.below(7)
        rows = [(start := dice.between(300, 1200), start + gap) for _ in range(9)]
        lines = [f"{stop} leaves {_clock(a)}, is there {_clock(b)}" for stop, (a, b) in zip(stops, rows, strict=True)]
    else:
        lines = []
        for stop in stops:
            start, gap = dice.between(300, 1200), dice.pick(_GAPS)
            times = [_clock(start + gap * i) for i in range(5)]
            lines.append(f"{stop}: {', '.join(times)}" if template == 0 else f"{' > '.join(times)} ({stop})")
    text = "\n".join(lines)
    end = len(text) - (8 if template == 1 else 0)
    return [(text[: end - 5], text[end - 5 : end])]


def _solve_interval(prompt: str) -> set[str]:
    rows = [
        [int(hour) * 60 + int(minute) for hour, minute in re.findall(r"(\d\d):(\d\d)", line)]
        for line in prompt.split("\n")
    ]
    *before, last = rows
    if "leaves" in prompt:
        gaps = {b - a for a, b in before}
    else:
        gaps = {b - a for a, b in itertools.pairwise(last)}
    return {f"{(last[-1] + gap) // 60:02d}:{(last[-1] + gap) % 60:02d}" for gap in gaps}


FAMILIES = (
    Family("schedule-time", CATEGORY, 3, _time, _solve_time),
    Family("schedule-beside", CATEGORY, 3, _beside, _solve_beside),
    Family("schedule-rota", CATEGORY, 3, _rota, _solve_rota),
    Family("schedule-interval", CATEGORY, 3, _interval, _solve_interval),
)
