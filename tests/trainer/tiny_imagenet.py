"""A small dataset in tiny-imagenet's layout: photographs of a kind, the digits as 64 x 64 colour JPEGs.

tiny_imagenet.write(tmp_path / "tiny-imagenet-200")
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

CLASSES = ("n01443537", "n01629819", "n01641577")
TRAIN, VAL, SIDE = 16, 5, 64


def write(root: Path) -> None:
    """``train/<class>/images/*.JPEG`` and ``val/images`` with its annotations, as the archive unzips."""
    digits = load_digits()
    (root / "val" / "images").mkdir(parents=True)
    lines = []
    for label, name in enumerate(CLASSES):
        (root / "train" / name / "images").mkdir(parents=True)
        (root / "train" / name / f"{name}_boxes.txt").write_text("not an image\n")
        for index, pixels in enumerate(digits.images[digits.target == label][: TRAIN + VAL]):
            image = Image.fromarray(np.rint(pixels * (255 / 16)).astype(np.uint8)).convert("RGB").resize((SIDE, SIDE))
            if index < TRAIN:
                image.save(root / "train" / name / "images" / f"{name}_{index}.JPEG")
            else:
                number = (index - TRAIN) * len(CLASSES) + label
                image.save(root / "val" / "images" / f"val_{number}.JPEG")
                lines.append(f"val_{number}.JPEG\t{name}\t0\t32\t44\t62\n")
    (root / "val" / "val_annotations.txt").write_text("".join(lines))
    (root / "wnids.txt").write_text("".join(f"{name}\n" for name in CLASSES))
