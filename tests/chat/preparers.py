"""What prepares requests, over a fixture's tokenizer and any template, without weights."""

from pathlib import Path

from bushel.core.checkpoint import read_checkpoint
from bushel.models import Preparer
from bushel.text.tokenizer import load_tokenizer
from tests.families.checkpoint import VOCAB
from tests.models.altered_checkpoints import copied, set_template


def host(path: Path, template: str | None = None) -> Preparer:
    """Of a text model; `path` is a folder for its files."""
    folder = copied("llama", path)
    if template is not None:
        set_template(folder, template)
    checkpoint = read_checkpoint(str(folder), trust_remote_code=False)
    return Preparer(checkpoint, load_tokenizer(checkpoint, trust_remote_code=False), VOCAB)
