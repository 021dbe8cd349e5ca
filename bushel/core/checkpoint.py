"""What a checkpoint is, read from its JSON files before any weight or code of it is touched."""

from __future__ import annotations

import hashlib
import json
import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from bushel.core import ModelError
from bushel.core.context_borders import context_borders
from bushel.core.text_alone import text_alone_because

_VISION_WEIGHT = re.compile(
    r"(^|\.)(vision\w*|visual|vit|vpm|image_encoder|patch_embed\w*|siglip\w*)(\.|$)"
)
_VISION_CONFIGS = ("vision_config", "vision_cfg", "vit_config", "visual")
_NAMED_TOWER = "mm_vision_tower"  # of LLaVA's first form, as FastVLM has it
TINY = "bushel:tiny"  # the model that comes with the package
# Enough to load a model; leaves out the duplicates in other formats that repositories carry.
HUB_FILES = ["*.json", "*.safetensors", "*.jinja", "*.txt", "*.model", "*.tiktoken", "*.py"]
_REPO_ID = re.compile(r"(?:\w(?:[\w.-]{0,94}\w)?/)?\w(?:[\w.-]{0,94}\w)?", re.ASCII)

_ZEROS = ".qzeros"  # of AWQ: numbers of four bits, which MLX does not have
_FLOAT_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}


@dataclass(frozen=True)
class Checkpoint:
    path: Path
    config: dict[str, Any]
    generation: dict[str, Any]
    tokenizer: dict[str, Any]
    weight_names: frozenset[str]
    pooling: dict[str, Any] = field(default_factory=dict)  # how hidden states become an embedding

    @property
    def model_type(self) -> str:
        return str(self.config["model_type"])

    @property
    def _main(self) -> dict[str, Any]:
        """The config, or that of the part which thinks where another one talks."""
        return {**self.config, **self.config.get("thinker_config", {})}

    @property
    def text_config(self) -> dict[str, Any]:
        for key in ("text_config", "llm_config", "language_config"):
            if isinstance(self._main.get(key), dict):
                return {**self._main, **self._main[key]}
        return self.config

    @property
    def heads(self) -> int:
        """Query heads of an attention layer; 1 if the config does not tell."""
        return self._whole("num_attention_heads", "n_heads", "n_head", "num_heads") or 1

    @property
    def head_dim(self) -> int | None:
        """How wide a head's query is. Latent attention has two parts, and `head_dim` names one."""
        if parts := self._whole("qk_nope_head_dim"):
            return parts + (self._whole("qk_rope_head_dim") or 0)
        width = self._whole("hidden_size", "n_embd", "d_model", "dim")
        return self._whole("head_dim") or (width // self.heads if width else None)

    @property
    def sees(self) -> bool:
        """Vision config and vision weights: either alone is a text model."""
        configured = any(isinstance(self._main.get(key), dict) for key in _VISION_CONFIGS)
        configured |= bool(self.config.get("vision_n_layers"))  # deepseek_v4 has it among the rest
        configured = configured or _NAMED_TOWER in self._main
        return configured and any(_VISION_WEIGHT.search(name) for name in self.weight_names)

    @property
    def takes_pictures(self) -> bool:
        return self.sees and text_alone_because(self.config) is None

    @property
    def classifies(self) -> bool:
        """Whole texts, by labels."""
        names = self.config.get("architectures") or ()
        return any(str(name).endswith("ForSequenceClassification") for name in names)

    @property
    def context(self) -> int | None:
        return self._whole(
            "max_position_embeddings", "max_sequence_length", "seq_length", "n_positions"
        )

    @property
    def context_borders(self) -> tuple[int, ...]:
        return context_borders(self.text_config)

    def _whole(self, *names: str) -> int | None:
        """The first of these settings of the text model that is a positive number."""
        for name in names:
            value = self.text_config.get(name)
            if isinstance(value, int) and value > 0:
                return value
        return None


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path.name} of {path.parent} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise ModelError(f"{path.name} of {path.parent} is not a JSON object.")
    return content


def _optional(path: Path) -> dict[str, Any]:
    return _read_json(path) if path.exists() else {}


def weight_bytes(model: str, float_bytes: int | None = None) -> int:
    """Bytes of a checkpoint's weights in memory, from the headers of its files. float_bytes: what
    a number of 16 or 32 bits takes there; None: what it takes in the file. Fetches what is not
    here.
    """
    path = folder_of(model)
    total = 0
    for file in sorted(path.glob("*.safetensors")):
        for name, tensor in _read_header(file).items():
            if name.endswith(_ZEROS):
                total += _zeros_bytes(tensor, float_bytes)
            elif name != "__metadata__":
                total += _tensor_bytes(tensor, float_bytes)
    return total


def loaded_bytes(model: str, dtype: str | None, *, widens: bool) -> int:
    """Bytes of its weights once they are loaded. widens: the device has float32 where no dtype is
    asked for."""
    wide = 4 if widens else None
    return weight_bytes(model, wide if dtype is None else _FLOAT_BYTES.get(dtype))


def require_fit(weights: int, usable: int) -> None:
    """ModelError if weights alone are more than the memory that may be used."""
    if weights > usable:
        raise ModelError(
            f"The model needs {_gb(weights)} for its weights alone; {_gb(usable)} may be used."
        )


def _gb(size: int) -> str:
    return f"{size / 1e9:.2f} GB"


def _zeros_bytes(tensor: dict[str, Any], float_bytes: int | None) -> int:
    """Each of these becomes a bias for its group of weights, in the type of the scales."""
    packed = _tensor_bytes(tensor, None)
    return packed * 2 * (2 if float_bytes is None else float_bytes)


def _tensor_bytes(tensor: dict[str, Any], float_bytes: int | None) -> int:
    try:
        start, end = tensor["data_offsets"]
        if float_bytes is None or tensor["dtype"] not in ("F32", "F16", "BF16"):
            return int(end - start)
        return math.prod(tensor["shape"]) * float_bytes
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError("A safetensors header does not say how large its arrays are.") from error


def _read_header(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as handle:
            size = int.from_bytes(handle.read(8), "little")
            header = json.loads(handle.read(min(size, 1 << 28)))
    except (OSError, ValueError) as error:
        raise ModelError(f"{file.name} is not a safetensors file: {error}") from error
    if not isinstance(header, dict):
        raise ModelError(f"{file.name} is not a safetensors file: its header is no object")
    return header


class TensorPlace(NamedTuple):
    """Where a tensor lies, and how large it is; nothing of it is read."""

    file: Path
    shape: tuple[int, ...]


def tensor_places(path: Path) -> dict[str, TensorPlace]:
    """All tensors in a folder by name, from the headers of its files, in its index or not."""
    places = {}
    for file in sorted(path.glob("*.safetensors")):
        for name, tensor in _read_header(file).items():
            if name != "__metadata__":
                places[name] = TensorPlace(file, tuple(tensor.get("shape", ())))
    return places


def _weight_names(path: Path) -> frozenset[str]:
    index = path / "model.safetensors.index.json"
    if index.exists():
        return frozenset(_read_json(index).get("weight_map", {}))
    names: set[str] = set()
    for file in sorted(path.glob("*.safetensors")):
        names |= _read_header(file).keys()
    return frozenset(names - {"__metadata__"})


def folder_of(model: str) -> Path:
    """Where a checkpoint lies, of this package, on this machine or in the hub's cache."""
    if model == TINY:
        return Path(__file__).parents[1] / "tiny"
    path = Path(model).expanduser()
    if path.is_dir():
        return path
    if not is_hub_id(model):
        raise ModelError(
            f"{model} is neither a directory with a checkpoint nor a hub id of the form owner/name."
        )
    return fetch(model)


def is_hub_id(model: str) -> bool:
    """Whether it can only be one: it has the form, and nothing here has that name."""
    here = Path(model).expanduser().exists()
    return not here and not model.startswith((".", "/", "~")) and model.count("/") == 1


def is_repo_id(name: str) -> bool:
    """Whether the hub could have given a model that name, which then names no other place: no path,
    no `..`, and nothing that its folder in the hub's cache could be mistaken by.
    """
    odd = ".." in name or "--" in name or name.endswith(".git")
    return _REPO_ID.fullmatch(name) is not None and not odd


def fetch(model: str) -> Path:
    """Where a model of the hub lies, after downloading what is missing of it."""
    from huggingface_hub import snapshot_download

    from bushel.core.download_bar import DownloadBar
    from bushel.core.hub_errors import hub_error

    DownloadBar.begin()
    try:
        return Path(snapshot_download(model, allow_patterns=HUB_FILES, tqdm_class=DownloadBar))
    except Exception as error:
        raise hub_error(model, error) from error
    finally:
        DownloadBar.end()


def _refuse_code(path: Path, config: dict[str, Any], tokenizer: dict[str, Any]) -> None:
    wanted = [f"model_file {config['model_file']!r}"] if config.get("model_file") else []
    auto_map = tokenizer.get("auto_map")
    if isinstance(auto_map, dict) and auto_map.get("AutoTokenizer"):
        wanted.append(f"tokenizer code {auto_map['AutoTokenizer']!r}")
    if wanted:
        raise ModelError(
            f"The checkpoint {path.name} asks to run code of its own ({', '.join(wanted)}). "
            "Pass trust_remote_code=True if you trust its authors."
        )


def read_checkpoint(model: str, *, trust_remote_code: bool = False) -> Checkpoint:
    path = folder_of(model)
    if not (path / "config.json").exists():
        raise ModelError(f"{path} has no config.json, so it is not a checkpoint.")
    config = _read_json(path / "config.json")
    tokenizer = _optional(path / "tokenizer_config.json")
    if not trust_remote_code:
        _refuse_code(path, config, tokenizer)
    if not isinstance(config.get("model_type"), str) and not config.get("model_file"):
        raise ModelError(f"config.json of {path.name} does not say its model_type.")
    names = _weight_names(path)
    if not names:
        raise ModelError(f"{path.name} holds no safetensors weights.")
    generation = _optional(path / "generation_config.json")
    pooling = _optional(path / "1_Pooling" / "config.json")
    return Checkpoint(path, config, generation, tokenizer, names, pooling)


def fingerprint(path: Path) -> str:
    """Tells checkpoints apart without reading their weights: by config, and by sizes and times."""
    files = sorted(
        file for file in path.iterdir() if file.suffix in (".safetensors", ".npz", ".json")
    )
    stamps = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    config = path / "config.json"
    text = config.read_text() if config.exists() else ""
    return hashlib.sha256(repr([text, stamps]).encode()).hexdigest()
