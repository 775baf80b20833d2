"""A folder name and a template -> a project: a configuration, and with sample data everything a first run needs. Trains nothing.

DIR/
  crucible.yaml             the template
  README.md                 the next commands, in order
  .gitignore                runs, sweeps and caches stay out of version control
  evalsets/frozen/          sample data: 2,000 WordNet bundles, tiered once by MiniLM
  data/events.jsonl         sample data: sentences with their senses, to mine from
  data/organic.jsonl        sample data: mined bundles for training
  data/organic-holdout.jsonl  sample data: mined bundles of senses that training never sees
  data/NOTICE               the licence of WordNet, which all of it comes from
"""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path
from typing import Literal, get_args

import msgspec

from crucible.documents import new_folder, write_bytes, writing
from crucible.errors import BadConfig, Mistake

Template = Literal["basic", "production", "sweep"]
TEMPLATES: tuple[str, ...] = get_args(Template)
_HERE = Path(__file__).parent
_SAMPLE = _HERE / "sample"
_ZIPPED = {"events.jsonl.gz": "events.jsonl", "organic.jsonl.gz": "organic.jsonl"}
_ZIPPED |= {"organic-holdout.jsonl.gz": "organic-holdout.jsonl"}

_FIRST = {
    "basic": "crucible train --config crucible.yaml --output-dir runs/first",
    "production": "crucible capsule build --config crucible.yaml --output-dir runs/production -o capsule.tar.gz",
    "sweep": "crucible sweep ratio --config crucible.yaml --ratios 85_10_5,75_15_10,65_25_10 "
    "--output-dir sweeps/ratio --parallel 2",
}
_DATA = (
    "crucible corpus wordnet --out corpus        # or events of your own: crucible bundles build EVENTS --out BUNDLES",
    "crucible evalset freeze corpus/bundles.jsonl --name frozen --version v1 --encoder minilm --seed 42 --out evalsets/frozen",
    "crucible mine --events corpus/events.jsonl --model minilm --existing-tier3 corpus/bundles.jsonl --output data/mined.jsonl",
    "crucible pool split --input data/mined.jsonl --holdout-fraction 0.3 --seed 42 "
    "--output-train data/organic.jsonl --output-holdout data/organic-holdout.jsonl",
)


class Created(msgspec.Struct, frozen=True):
    """What `crucible init` did, and what to do next."""

    folder: str
    template: str
    files: list[str]
    next: list[str]


def create(folder: Path, template: str, *, sample_data: bool) -> Created:
    """The folder must not exist, or be empty: nothing of the user's is ever written over."""
    if template not in TEMPLATES:
        raise BadConfig(f"no template is called {template!r}", fix=f"Choose one of {', '.join(TEMPLATES)}.")
    if folder.is_dir() and folder.resolve() == Path.cwd():
        return _into_here(folder, template, sample_data)
    with new_folder(folder) as draft:
        _fill(draft, template, sample_data)
        files = _files(draft)
    return Created(str(folder), template, files, [f"cd {folder}", *_steps(template, sample_data)])


def _into_here(folder: Path, template: str, sample_data: bool) -> Created:
    """`crucible init .`: a folder cannot replace the one the user stands in, so its content moves in."""
    if any(folder.iterdir()):
        raise Mistake(f"{folder.resolve()} is not empty", fix="Start in a new folder: crucible init NAME")
    with new_folder(folder.resolve() / ".init") as draft:
        _fill(draft, template, sample_data)
        files = _files(draft)
    for inner in (folder / ".init").iterdir():
        inner.rename(folder / inner.name)
    (folder / ".init").rmdir()
    return Created(str(folder), template, files, _steps(template, sample_data))


def _fill(draft: Path, template: str, sample_data: bool) -> None:
    write_bytes(draft / "crucible.yaml", (_HERE / "templates" / f"{template}.yaml").read_bytes())
    write_bytes(draft / ".gitignore", b"runs/\nsweeps/\n*.tar.gz\n.*.mining/\n")
    write_bytes(draft / "README.md", _readme(template, sample_data).encode())
    if sample_data:
        _sample(draft)


def _sample(draft: Path) -> None:
    frozen, data = draft / "evalsets" / "frozen", draft / "data"
    (frozen / "v1").mkdir(parents=True)
    data.mkdir()
    shutil.copyfile(_SAMPLE / "frozen" / "changelog.jsonl", frozen / "changelog.jsonl")
    shutil.copyfile(_SAMPLE / "frozen" / "evalset.json", frozen / "v1" / "evalset.json")
    shutil.copyfile(_SAMPLE / "bundles.jsonl", frozen / "v1" / "source-1.jsonl")
    write_bytes(frozen / "v1" / "items.jsonl", gzip.decompress((_SAMPLE / "frozen" / "items.jsonl.gz").read_bytes()))
    for packed, name in _ZIPPED.items():
        with writing(data / name) as stream, gzip.open(_SAMPLE / packed) as source:
            shutil.copyfileobj(source, stream)
    shutil.copyfile(_SAMPLE / "NOTICE", data / "NOTICE")


def _files(draft: Path) -> list[str]:
    return sorted(str(path.relative_to(draft)) for path in draft.rglob("*") if path.is_file())


def _steps(template: str, sample_data: bool) -> list[str]:
    data = [] if sample_data else list(_DATA)
    return [*data, "crucible config validate crucible.yaml", "crucible config exposure crucible.yaml", _FIRST[template]]


def _readme(template: str, sample_data: bool) -> str:
    steps = "\n".join(f"    {step}" for step in _steps(template, sample_data))
    about = (
        "The data is a sample from WordNet (data/NOTICE is its licence): bundles frozen and tiered by MiniLM, and bundles "
        "mined from senses that are not among them."
        if sample_data
        else "There is no data yet: the first commands below make some from an installed WordNet."
    )
    return f"# A crucible project\n\n{about}\n\nNext:\n\n{steps}\n\nThe tutorial is docs/tutorial-crucible.md.\n"
