"""Data: a source's name becomes a :class:`Split` of arrays (train, validation, test) with names and a content hash.

Sources::

    jets             the jets shipped with this project (experiments/jets/simulate.py made them)
    openml:42468     a data set published on openml.org by its number; 42468 is the LHC jet benchmark, 830,000 jets
    digits           scikit-learn's 8 x 8 handwritten digits
    file:NAME        the user's own .csv, .parquet or .npz, relative to the folder of the experiment's TOML
    synthetic:NAME   made up for networks whose data are not at hand (:mod:`hawq_flow.data.synthetic`)
    field:NAME       recordings that a folder outside the project may hold (:mod:`hawq_flow.data.field`)

``jets`` and ``openml:42468`` are different data (other simulations, other accuracies): never put both in one table.

The split is stratified: of the ``n_c`` rows of class ``c``, ``round(f n_c)`` go to the test and validation part of
fraction ``f``, at least one where ``f > 0``, and the rest to training. Both fractions are of all rows. Which rows is
decided by sorting random 64-bit words, PCG64's raw stream seeded by ``seed``: a stream that numpy promises never to
change, so that a split is the same on every machine and version.

Standardization is ``(x - mean) / std``, in float64, with the mean and the (population) standard deviation of the
training part only: per feature for tables, one pair for a whole image or one a channel (``standardize``).

Everything that would make a network learn nonsense is refused here, with the column, the rows and the fix: missing and
infinite values, constant columns, classes without training rows, columns that are no numbers, names that do not exist.
"""

from hawq_flow.data.errors import AbsentDataError, DataError
from hawq_flow.data.openml import cache_folder
from hawq_flow.data.rows import split_rows
from hawq_flow.data.sources import load
from hawq_flow.data.split import Part, Scale, Split, Standardization

__all__ = [
    "AbsentDataError",
    "DataError",
    "Part",
    "Scale",
    "Split",
    "Standardization",
    "cache_folder",
    "load",
    "split_rows",
]
