"""A WordNet folder, or a file of events -> bundles on disk with their stats and licence. Whole or not at all; prints nothing.

DIR/events.jsonl     every event, also those that are in no bundle: mining draws from them
DIR/bundles.jsonl    nested events, read by every command that takes bundles
DIR/stats.json       counts, what was left out and why, digests of what was read and written
DIR/NOTICE           the licence under which the texts may be passed on
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec

from crucible.contrast.corpus import events as event_files
from crucible.contrast.corpus import senses, stats, wordnet
from crucible.contrast.corpus.build import Built, Plan, build
from crucible.contrast.corpus.events import Event
from crucible.contrast.corpus.stats import Stats
from crucible.documents import new_folder, write_bytes, write_json, writing
from crucible.errors import BadConfig, BadData
from crucible.kernel import digest

Watch = Callable[[str], AbstractContextManager[Callable[[int, int], None]]]
"""What to call a long step -> where its (done, total) goes."""

_NO_LICENCE = (
    "These files carried no licence text. WordNet is a work of Princeton University and comes under its licence."
)


class CorpusStats(msgspec.Struct, frozen=True, kw_only=True):
    """stats.json of a WordNet corpus."""

    corpus: str
    version: str
    synsets: dict[str, int]
    examples: int
    examples_left_out: dict[str, int]
    min_words: int
    limit: int | None
    build: Stats
    inputs: dict[str, str]
    """SHA-256 of each file of the database."""
    outputs: dict[str, str]
    """SHA-256 of each file beside this one."""
    licence: str


def wordnet_corpus(out: Path, plan: Plan, watch: Watch, *, folder: Path | None, limit: int | None) -> CorpusStats:
    """Builds DIR and says what is in it; the folder must not exist, or be empty."""
    source = wordnet.locate(folder)
    with new_folder(out) as draft:
        with watch("reading WordNet") as progress:
            database = wordnet.read(source, progress)
        found = senses.harvest(database, glosses=plan.style == "glosses")
        with watch("building bundles") as progress:
            built = build(found.events, plan, limit=limit, progress=progress)
        if not built.drafts:
            raise BadData.at(source, "gives no bundle", fix="Ask for fewer kinds of negatives or another style.")
        _write(draft / "events.jsonl", draft / "bundles.jsonl", found.events, built)
        write_bytes(draft / "NOTICE", _notice(database).encode())
        outputs = {name: digest.of_file(draft / name) for name in ("events.jsonl", "bundles.jsonl", "NOTICE")}
        made = _corpus_stats(database, found, stats.of_build(found.events, plan, built), limit, outputs)
        write_json(draft / "stats.json", made)
    return made


def own_bundles(source: Path, out: Path, plan: Plan, watch: Watch, *, limit: int | None) -> Stats:
    """The bundles of a user's own events, written to the file `out`."""
    if out.resolve() == source.resolve():
        raise BadConfig(f"{out} is the file of events itself", fix="Give another name with --out.")
    events = event_files.read(source)
    with watch("building bundles") as progress:
        built = build(events, plan, limit=limit, progress=progress)
    made = stats.of_build(events, plan, built)
    if not built.drafts:
        reasons = ", ".join(f"{reason} {count}" for reason, count in made.anchors_left_out.items()) or "no examples"
        raise BadData.at(
            source,
            f"{len(events)} events give no bundle ({reasons})",
            fix="A bundle needs two events of one sense and one of another sense of the same lemma; "
            "--within 0 builds without the latter.",
        )
    _write(None, out, events, built)
    return made


def _write(events_path: Path | None, bundles_path: Path, events: Iterable[Event], built: Built) -> None:
    if events_path is not None:
        with writing(events_path) as stream:
            event_files.write(stream, events)
    with writing(bundles_path) as stream:
        for draft in built.drafts:
            stream.write(draft.line() + b"\n")


def _corpus_stats(
    database: wordnet.Database, found: senses.Harvest, made: Stats, limit: int | None, outputs: dict[str, str]
) -> CorpusStats:
    by_pos = dict.fromkeys(wordnet.FILES, 0)
    for synset in database.synsets:
        by_pos[synset.pos] += 1
    return CorpusStats(
        corpus="wordnet",
        version=database.version,
        synsets=by_pos,
        examples=found.examples,
        examples_left_out=dict(sorted(found.left_out.items())),
        min_words=senses.MIN_WORDS,
        limit=limit,
        build=made,
        inputs=database.digests,
        outputs=outputs,
        licence=f"The texts come from WordNet {database.version}: keep NOTICE with every copy of them.",
    )


def _notice(database: wordnet.Database) -> str:
    what = f"The texts in this folder come from WordNet {database.version}, which comes under this licence:"
    return f"{what}\n\n{database.licence or _NO_LICENCE}\n"
