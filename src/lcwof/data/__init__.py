"""Where images come from: sources, the decoded cache, splits, episodes, augmentation.

Everything downstream holds indices into one `Images`, never pixels.
"""

from lcwof.data import benchmarks, clips  # noqa: F401 - register their data sets
from lcwof.data.arrays import from_arrays, read_features, read_npz_images
from lcwof.data.augment import Augment
from lcwof.data.datasets import dataset_names, load_dataset, register_dataset
from lcwof.data.images import Dataset, Images, Split
from lcwof.data.sources import read_folders, read_images
from lcwof.data.strokes import draw_strokes

__all__ = [
    "Augment",
    "Dataset",
    "Images",
    "Split",
    "dataset_names",
    "draw_strokes",
    "from_arrays",
    "load_dataset",
    "read_features",
    "read_folders",
    "read_images",
    "read_npz_images",
    "register_dataset",
]
