"""Train the vocabulary of the reference loop: ``python -m scripts.train_tokenizer``.

The text is the standard library of the Python that runs this, 3.11.7 for the file that is shipped (PSF licence, which
permits derived works); what is shipped is a list of byte sequences by frequency, not the text. Byte-level, so that
every string can be encoded and comes back the same.
"""

from __future__ import annotations

import sysconfig
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

VOCABULARY_SIZE = 4096
END_OF_TEXT = "<|end|>"
OUTPUT = Path(__file__).resolve().parents[1] / "profkit" / "loop" / "vocabulary.json"


def training_files() -> list[str]:
    """The standard library's own sources in a fixed order, without its tests and what was installed beside it."""
    root = Path(sysconfig.get_path("stdlib"))
    skipped = {"site-packages", "test", "tests", "idlelib", "lib2to3", "__pycache__"}
    files = (path for path in root.rglob("*.py") if not skipped & set(path.relative_to(root).parts))
    return [str(path) for path in sorted(files)]


def main() -> None:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train(training_files(), trainer)
    tokenizer.save(str(OUTPUT), pretty=False)


if __name__ == "__main__":
    main()
