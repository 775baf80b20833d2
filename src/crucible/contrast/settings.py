"""A YAML file, the files it extends, the environment and dotted overrides -> a Config, or every problem with its key.

    extends: base.yaml            merged under this file; a path, or several (later ones win); relative to this file
    data:
      bundles: ${DATA}/a.jsonl    ${VAR} and ${VAR:-default} from the environment; $${ is a plain ${

Mappings are merged key by key, everything else is replaced. Paths are relative to the file they stand in; those of an
override (`--data.bundles x.jsonl`) to where the command runs. Nothing is guessed: an unknown key, a key twice, a variable
that is not set and a number that is no number are errors.
"""

from __future__ import annotations

import copy
import difflib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec
import yaml

from crucible.contrast import shares
from crucible.contrast.config import Config
from crucible.documents import as_builtins, read_bytes
from crucible.errors import BadConfig

_WHAT = "a configuration"
_FIX = "See the keys and their defaults: crucible config show --defaults"
_LARGEST, _DEEPEST, _MOST_NODES = 1 << 20, 16, 20_000
_PATHS = (
    ("data", "bundles"),
    ("data", "frozen_eval"),
    ("data", "organic_eval"),
    ("data", "embeddings_cache"),
    ("experiment", "output_dir"),
)


def load(path: Path, overrides: Mapping[str, str] | None = None) -> Config:
    """The configuration of a file with `section.key` overrides as they stand on a command line; validated."""
    tree = _read(path, ())
    whole = copy.deepcopy(tree)
    for key, text in (overrides or {}).items():
        _set(whole, key, _yaml(text, f"--{key}"))
    try:
        return _checked(whole, str(path))
    except BadConfig:
        _checked(tree, str(path))  # raises where the file itself is wrong; otherwise it is the command line
        return _checked(whole, "command line")


def with_overrides(config: Config, values: Mapping[str, Any]) -> Config:
    """The same configuration with some keys set to plain values."""
    tree = as_builtins(config)
    for key, value in values.items():
        _set(tree, key, value)
    return _checked(tree, "overrides")


def dump(config: Config) -> bytes:
    """Every key with its value, as YAML that `load` reads back to the same Config."""
    text: str = yaml.safe_dump(as_builtins(config), sort_keys=False, allow_unicode=True, default_flow_style=None)
    return text.replace("${", "$${").encode()


def digest_input(config: Config) -> dict[str, Any]:
    """What two runs of one configuration share: everything but where the output goes and what it is called."""
    tree: dict[str, Any] = as_builtins(config)
    tree["experiment"] = {key: tree["experiment"][key] for key in ("checkpoint_every", "eval_every")}
    return tree


def require_files(config: Config) -> None:
    """Guardrail G2, the part that looks at the disk: what the configuration names must be there."""
    named = [("data.bundles", path) for path in config.data.bundles]
    named += [("data.frozen_eval", config.data.frozen_eval), ("data.organic_eval", config.data.organic_eval)]  # type: ignore[list-item]
    if not config.data.bundles:
        raise BadConfig("data.bundles names no file", fix="Set it: --data.bundles FILE, or in the configuration.")
    missing = [f"{key}: {path} does not exist" for key, path in named if path and not Path(path).exists()]
    if missing:
        raise BadConfig(
            "; ".join(missing),
            fix="Paths are relative to the file they stand in. Correct them, or make the files "
            "(crucible evalset freeze, crucible mine, crucible pool split).",
            facts={"guardrail": "G2", "problems": missing},
        )


# --- reading -----------------------------------------------------------------------------------------------------------


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """Plain data only; a key that stands twice is an error instead of a silent win."""


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, str):
            raise yaml.constructor.ConstructorError(None, None, f"the key {key!r} is no word", key_node.start_mark)
        if key in found:
            raise yaml.constructor.ConstructorError(None, None, f"the key {key!r} stands twice", key_node.start_mark)
        found[key] = loader.construct_object(value_node, deep=True)
    return found


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def _yaml(text: str, where: str) -> Any:
    if len(text) > _LARGEST:
        raise BadConfig(f"{where}: is larger than {_LARGEST} bytes", fix="A configuration is a short file.")
    try:
        found = yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f":{mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise BadConfig(f"{where}{place}: is not YAML: {problem}", fix="Check indentation and quotes there.") from None
    except (RecursionError, ValueError) as error:
        raise BadConfig(f"{where}: is not YAML: {error}", fix="Check indentation and quotes.") from None
    _require_small(found, where)
    return found


def _require_small(tree: Any, where: str) -> None:
    """Aliases can make a few lines mean billions of values; no configuration needs that."""
    count, stack = 0, [(tree, 0)]
    while stack:
        value, depth = stack.pop()
        count += 1
        if count > _MOST_NODES or depth > _DEEPEST:
            raise BadConfig(f"{where}: is too large or too deeply nested", fix="Write the values out, without aliases.")
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        stack.extend((one, depth + 1) for one in inner)


def _read(path: Path, above: tuple[Path, ...]) -> dict[str, Any]:
    resolved = path.resolve()
    if resolved in above:
        chain = " -> ".join(str(one) for one in (*above, resolved))
        raise BadConfig(f"{path}: extends itself: {chain}", fix="Break the circle of `extends`.")
    try:
        text = read_bytes(path, _WHAT).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadConfig(f"{path}: is not UTF-8 ({error.reason})", fix="Save it as UTF-8.") from None
    tree = _yaml(text, str(path))
    tree = {} if tree is None else tree
    if not isinstance(tree, dict):
        raise BadConfig(f"{path}: holds a {type(tree).__name__} where sections are expected", fix=_FIX)
    parents = tree.pop("extends", None) or []
    tree = _substituted(tree, str(path), "")
    _refuse_unknown(tree, str(path))
    _anchor_paths(tree, path.parent)
    merged: dict[str, Any] = {}
    for parent in [parents] if isinstance(parents, str) else parents:
        if not isinstance(parent, str):
            raise BadConfig(f"{path}: extends: {parent!r} is no path", fix="extends: base.yaml")
        name = _substituted(parent, str(path), "extends")
        if not (path.parent / name).is_file():
            raise BadConfig(f"{path}: extends: {path.parent / name} is no file", fix="A path relative to this file.")
        merged = _merged(merged, _read(path.parent / name, (*above, resolved)))
    return _merged(merged, tree)


def _merged(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    both = {**under, **over}
    for key in under.keys() & over.keys():
        if isinstance(under[key], dict) and isinstance(over[key], dict):
            both[key] = _merged(under[key], over[key])
    return both


_VARIABLE = re.compile(r"\$\$\{|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}")


def _substituted(value: Any, where: str, key: str) -> Any:
    if isinstance(value, dict):
        return {name: _substituted(inner, where, f"{key}.{name}" if key else name) for name, inner in value.items()}
    if isinstance(value, list):
        return [_substituted(inner, where, key) for inner in value]
    if not isinstance(value, str):
        return value

    def replace(found: re.Match[str]) -> str:
        if found["name"] is None:
            return "${"
        known = os.environ.get(found["name"], found["default"])
        if known is None:
            raise BadConfig(
                f"{where}: {key}: the variable {found['name']} is not set",
                fix=f"export {found['name']}=…, or write ${{{found['name']}:-a default}}.",
            )
        return known

    return _VARIABLE.sub(replace, value)


def _anchor_paths(tree: dict[str, Any], folder: Path) -> None:
    """Makes the paths of one file mean the same wherever the command runs."""

    def anchored(value: Any) -> Any:
        if isinstance(value, list):
            return [anchored(one) for one in value]
        return os.path.normpath(folder / value) if isinstance(value, str) else value

    for section, key in _PATHS:
        block = tree.get(section)
        if isinstance(block, dict) and block.get(key):
            block[key] = anchored(block[key])
    model = tree.get("model")
    if isinstance(model, dict) and isinstance(model.get("encoder"), str):
        kind, colon, place = model["encoder"].partition(":")
        if colon and (kind in ("npy", "onnx", "head") or (kind == "st" and (folder / place).exists())):
            model["encoder"] = f"{kind}:{anchored(place)}"


# --- checking ----------------------------------------------------------------------------------------------------------


def known_keys() -> list[str]:
    """Every dotted key."""
    return list(_keys(Config, ""))


def _keys(shape: type, before: str) -> list[str]:
    found = []
    for name, hint in get_type_hints(shape).items():
        if name not in shape.__struct_fields__:  # type: ignore[attr-defined]
            continue
        found += _keys(hint, f"{before}{name}.") if _is_block(hint) else [f"{before}{name}"]
    return found


def _choices(key: str) -> list[str]:
    """The words that a key may have; none where it takes something else."""
    shape: Any = Config
    for name in key.split("."):
        shape = get_type_hints(shape).get(name) if _is_block(shape) else None
    inner = [shape, *get_args(shape)]
    return [str(word) for one in inner if get_origin(one) is Literal for word in get_args(one)]


def _is_block(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, msgspec.Struct)


def _refuse_unknown(tree: Mapping[str, Any], where: str) -> None:
    known = known_keys()
    for key in _leaves(tree, known):
        if key not in known and not any(one.startswith(f"{key}.") for one in known):
            raise unknown_key(key, where, known)


def _leaves(tree: Mapping[str, Any], known: Sequence[str], before: str = "") -> list[str]:
    found = []
    for name, value in tree.items():
        key = f"{before}{name}"
        inside = isinstance(value, dict) and any(one.startswith(f"{key}.") for one in known)
        found += _leaves(value, known, f"{key}.") if inside else [key]
    return found


def unknown_key(key: str, where: str, known: Sequence[str]) -> BadConfig:
    names = [*known, *sorted({one.rpartition(".")[0] for one in known})]
    by_tail = [one for one in known if one.rpartition(".")[2] == key.rpartition(".")[2]]
    near = by_tail or difflib.get_close_matches(key, names, n=1, cutoff=0.4)
    hint = f"; did you mean {near[0]}?" if near else ""
    facts = {"guardrail": "G2", "key": key, "nearest": near[0] if near else None}
    return BadConfig(f"{where}: {key}: unknown key{hint}", fix=_FIX, facts=facts)


def _set(tree: dict[str, Any], key: str, value: Any) -> None:
    known = known_keys()
    if key not in known and not any(one.startswith(f"{key}.") for one in known):
        raise unknown_key(key, "command line", known)
    *sections, last = key.split(".")
    block = tree
    for name in sections:
        inner = block.get(name)
        block[name] = dict(inner) if isinstance(inner, dict) else {}
        block = block[name]
    block[last] = value


_AT = re.compile(r" - at `\$\.?(?P<key>[^`]*)`$")


def _checked(tree: dict[str, Any], where: str) -> Config:
    data = tree.get("data")
    if isinstance(data, dict) and isinstance(data.get("bundles"), str):
        tree = {**tree, "data": {**data, "bundles": [data["bundles"]]}}
    try:
        config = msgspec.convert(tree, type=Config, strict=False)
    except msgspec.ValidationError as error:
        at = _AT.search(str(error))
        problem = str(error)[: at.start()] if at else str(error)
        key = at["key"] if at else "configuration"
        known = _choices(key)
        problem += f"; it is one of {', '.join(known)}" if known else ""
        raise BadConfig(f"{where}: {key}: {problem}", fix=_FIX, facts={"guardrail": "G2", "key": key}) from None
    found = problems(config)
    if found:
        raise BadConfig(f"{where}: " + "; ".join(found), fix=_FIX, facts={"guardrail": "G2", "problems": found})
    return config


def problems(config: Config) -> list[str]:
    """Guardrail G2, the part that looks at the values: each problem begins with its key."""
    training, model, experiment = config.training, config.model, config.experiment
    least = {
        "training.steps": (training.steps, 1),
        "training.batch_size": (training.batch_size, 1),
        "training.learning_rate": (training.learning_rate, 0),
        "training.weight_decay": (training.weight_decay, 0),
        "training.gradient_clip": (training.gradient_clip, 0),
        "training.warmup_steps": (training.warmup_steps, 0),
        "model.hidden": (model.hidden, 0),
        "model.max_negatives": (model.max_negatives, 0),
        "model.temperature": (model.temperature, 1e-4),
        "experiment.checkpoint_every": (experiment.checkpoint_every, 1),
        "experiment.eval_every": (experiment.eval_every, 1),
        "guardrails.dilution_block_threshold": (config.guardrails.dilution_block_threshold, 0),
        "guardrails.dilution_warning_threshold": (config.guardrails.dilution_warning_threshold, 0),
        "guardrails.regression_threshold": (config.guardrails.regression_threshold, 0),
    }
    found = [
        f"{key} is {value}, it must be a number of at least {low}"
        for key, (value, low) in least.items()
        if value is not None and not low <= value <= 1e12  # also catches NaN and infinity
    ]
    if not re.fullmatch(r"auto|cpu|cuda(:\d{1,3})?", config.device.type):
        found.append(f"device.type is {config.device.type!r}, it must be auto, cpu, cuda or cuda:N")
    if not experiment.seeds or len(set(experiment.seeds)) < len(experiment.seeds):
        found.append(f"experiment.seeds are {list(experiment.seeds)}, they must be different and at least one")
    if model.train == "full" and not re.match(r"minilm$|st:", model.encoder):
        found.append(f"model.encoder is {model.encoder!r}, and only minilm or st:… can be trained in full")
    return found + list(shares.problems(config.curriculum))
