"""Simulate the jets this project ships: 13 TeV pp collisions to g, q, W, Z and t jets of 1 TeV, 16 observables each.

Run it as a script; it needs the extra ``simulate`` (pythia8mc, fastjet). Without arguments it writes ``jets.parquet``
and its recipe ``jets.json`` beside itself; ``--check N`` regenerates the first N jets and compares them with the
shipped ones. With the pinned versions the file comes out byte for byte.

The physics, in three steps (the recipe of Coleman et al., "The importance of calorimetry for highly-boosted jet
substructure", arXiv:1709.08705, on which the public jet benchmark of arXiv:1804.06913 stands):

1. *Hard process.* Two back-to-back gluons, quarks, W, Z or tops with transverse momenta of 1 TeV within 1.5 %, on
   their mass shells and not yet decayed.
2. *Event.* A second Pythia takes these as if read from a Les Houches file, so that W and Z decay isotropically in
   their rest frames: the bosons are unpolarised, as in the benchmark. (Pythia's own decays keep the polarisation of
   the 2 -> 2 process, which is transverse, and three jets in ten then lose a prong to grooming.) Decays to quarks
   only, initial and final state showers, multiple interactions, hadronisation; default (Monash 2013) tune.
3. *Jets.* Visible stable particles, anti-kT with R = 0.8, 800 < pT < 1600 GeV, the two leading jets. Each jet is
   groomed by the modified mass-drop tagger (mMDT, arXiv:1307.0007): recluster with Cambridge/Aachen, undo the last
   step, drop the softer branch while ``min(pT1, pT2) / (pT1 + pT2) < 0.1``.

The observables. With ``z_i = pT_i / sum pT`` and ``theta_ij`` the distance in rapidity and azimuth, the (generalised)
energy correlation functions (arXiv:1305.0007, arXiv:1609.07483) of the groomed jet are::

    e2(b)   = sum_{i<j}   z_i z_j theta_ij^b
    e3(b)   = sum_{i<j<k} z_i z_j z_k (theta_ij theta_ik theta_jk)^b
    e3_1(b) = sum_{i<j<k} z_i z_j z_k (the smallest of the three)^b
    e3_2(b) = sum_{i<j<k} z_i z_j z_k (the product of the two smallest)^b

    C1(b) = e2(b)             C2(b) = e3(b) / e2(b)^2          D2(a, b) = e3(a) / e2(b)^(3 a / b), D2(b) = D2(b, b)
    M2(b) = e3_1(b) / e2(b)   N2(b) = e3_2(b) / e2(b)^2

so ``d2_a1_b1`` repeats ``d2_b1``, as it does in the public set. ``mass_mmdt`` is the groomed mass in GeV. The sum of
``z log z`` and the multiplicity are of the jet before grooming. A ratio whose denominator is zero (a groomed jet of one
particle) is zero.

Storage: float32, each value rounded to 16 significant bits (relative error below 2^-16). That is finer than the
INT16 grid the networks read, it halves the file, and it makes the bytes independent of the last bits of a sum.
Row ``r`` is of class ``r % 5``; jets of one class come in blocks, and each block of each class has seeds of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib.metadata
import itertools
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

FEATURES = (
    "zlogz",
    "c1_b0_mmdt",
    "c1_b1_mmdt",
    "c1_b2_mmdt",
    "c2_b1_mmdt",
    "c2_b2_mmdt",
    "d2_b1_mmdt",
    "d2_b2_mmdt",
    "d2_a1_b1_mmdt",
    "d2_a1_b2_mmdt",
    "m2_b1_mmdt",
    "m2_b2_mmdt",
    "n2_b1_mmdt",
    "n2_b2_mmdt",
    "mass_mmdt",
    "multiplicity",
)
"""Column names of the public jet benchmark, in its order."""

CLASSES = ("g", "q", "w", "z", "t")
"""Class names in the order in which rows cycle through them."""

LABEL = "class"
PACKAGES = ("pythia8mc", "fastjet", "numpy", "pyarrow")
HERE = Path(__file__).resolve().parent

HARD_PROCESSES: dict[str, tuple[str, ...]] = {
    "g": ("HardQCD:gg2gg = on", "HardQCD:qqbar2gg = on"),
    "q": ("HardQCD:qq2qq = on", "HardQCD:gg2qqbar = on", "HardQCD:qqbar2qqbarNew = on"),
    "w": ("WeakDoubleBoson:ffbar2WW = on",),
    "z": ("WeakDoubleBoson:ffbar2gmZgmZ = on", "WeakZ0:gmZmode = 2"),
    "t": ("Top:gg2ttbar = on", "Top:qqbar2ttbar = on"),
}
"""Pythia settings that select the hard process of each class."""


@dataclass(frozen=True)
class Recipe:
    """Every number that decides which jets come out. Momenta and energies in GeV.

    Attributes
    ----------
    jets:
        Number of jets, a multiple of the number of classes.
    block:
        Jets of one class that share a pair of seeds.
    seed:
        Base of all seeds: block ``b`` of class ``c`` uses ``seed + 10 b + 2 c`` for the hard process and the next
        number for the event.
    energy_gev:
        Centre-of-mass energy of the collisions.
    pt_hat_gev:
        Window of the transverse momentum of the hard process.
    multiple_interactions:
        Whether the underlying event is simulated.
    shower_scale_gev:
        Scale handed over with the hard process, where showers and multiple interactions start; the Z mass, the
        customary fixed scale of a matrix-element generator. From the 1 TeV of the process itself, gluon jets become
        heavier and hold more particles than the real ones (docs/jets.md has the figures).
    breit_wigner:
        Whether W, Z and t masses are spread by their widths (else they are on their mass shells).
    radius, z_cut:
        Anti-kT radius, and the mMDT threshold.
    jet_pt_gev:
        Accepted transverse momenta of a jet before grooming.
    max_rapidity:
        Particles beyond this absolute pseudorapidity are not clustered.
    significant_bits:
        Significant bits kept of each stored value.
    extra:
        Further Pythia settings of the event, for studies.
    """

    jets: int = 60_000
    block: int = 1_000
    seed: int = 1_000_000
    energy_gev: float = 13_000.0
    pt_hat_gev: tuple[float, float] = (985.0, 1015.0)
    multiple_interactions: bool = True
    shower_scale_gev: float = 91.188
    breit_wigner: bool = False
    radius: float = 0.8
    z_cut: float = 0.1
    jet_pt_gev: tuple[float, float] = (800.0, 1600.0)
    max_rapidity: float = 5.0
    significant_bits: int = 16
    extra: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        if self.jets < 1 or self.jets % len(CLASSES):
            raise ValueError(
                f"recipe: jets is {self.jets}; expected a positive multiple of {len(CLASSES)}, the number of classes"
            )
        if self.block < 1:
            raise ValueError(f"recipe: block is {self.block}; expected at least 1")
        if not 2 <= self.significant_bits <= 24:
            raise ValueError(f"recipe: significant_bits is {self.significant_bits}; expected 2 to 24 (float32 has 24)")

    def seeds(self, name: str, block: int) -> tuple[int, int]:
        """Return the seeds of the hard process and of the event, for one block of one class."""
        first = self.seed + 10 * block + 2 * CLASSES.index(name)
        return first, first + 1

    def hard_settings(self, name: str, block: int) -> tuple[str, ...]:
        """Return the settings of the Pythia that makes the hard process of class ``name``."""
        return (
            *HARD_PROCESSES[name],
            f"Beams:eCM = {self.energy_gev}",
            f"PhaseSpace:pTHatMin = {self.pt_hat_gev[0]}",
            f"PhaseSpace:pTHatMax = {self.pt_hat_gev[1]}",
            f"PhaseSpace:useBreitWigners = {'on' if self.breit_wigner else 'off'}",
            "ProcessLevel:resonanceDecays = off",
            "PartonLevel:all = off",
            *_seeded(self.seeds(name, block)[0]),
        )

    def event_settings(self, name: str, block: int) -> tuple[str, ...]:
        """Return the settings of the Pythia that decays, showers and hadronises."""
        return (
            "Beams:frameType = 5",
            f"PartonLevel:MPI = {'on' if self.multiple_interactions else 'off'}",
            *(f"{boson}:onMode = off" for boson in (23, 24)),
            *(f"{boson}:onIfAny = 1 2 3 4 5" for boson in (23, 24)),
            *self.extra,
            *_seeded(self.seeds(name, block)[1]),
        )


def _seeded(seed: int) -> tuple[str, ...]:
    return ("Random:setSeed = on", f"Random:seed = {seed}", "Print:quiet = on")


# ---------------------------------------------------------------------------------------------------------------------
# Observables: numpy only
# ---------------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def _pairs_and_triples(n: int) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
    """Return, for n particles, the pairs (2, P), the triples (3, T), and each triple's three pairs (3, T)."""
    first, second = np.triu_indices(n, 1)
    pair = np.zeros((n, n), dtype=np.intp)
    pair[first, second] = np.arange(first.size)
    # Every pair (i, j) is followed by n - 1 - j values of k: the triples in the order of the pairs.
    counts = n - 1 - second
    i = np.repeat(first, counts)
    j = np.repeat(second, counts)
    starts = np.cumsum(counts) - counts
    k = np.arange(i.size) - np.repeat(starts, counts) + j + 1
    return np.stack([first, second]), np.stack([i, j, k]), np.stack([pair[i, j], pair[i, k], pair[j, k]])


@dataclass(frozen=True)
class Correlators:
    """Energy correlation functions of one jet, by angular exponent; see the module's opening for their definitions.

    Attributes
    ----------
    e2:
        Exponents 0, 1, 2.
    e3, e3_1, e3_2:
        Exponents 1, 2.
    """

    e2: dict[int, float]
    e3: dict[int, float]
    e3_1: dict[int, float]
    e3_2: dict[int, float]


def correlators(pt: Array, rapidity: Array, phi: Array) -> Correlators:
    """Compute the (generalised) energy correlation functions of one jet (arXiv:1305.0007, arXiv:1609.07483).

    Parameters
    ----------
    pt, rapidity, phi:
        Particles, float64 of shape (n,): transverse momentum (any unit: only fractions enter), rapidity, azimuth in
        radians (differences are wrapped to half a turn).

    Returns
    -------
    Correlators
        Dimensionless. With fewer than two (three) particles the two-point (three-point) functions are 0.

    Raises
    ------
    ValueError
        If the shapes differ, or the momenta do not sum to a positive number.
    """
    if not pt.shape == rapidity.shape == phi.shape or pt.ndim != 1:
        raise ValueError(
            f"correlators: pt, rapidity and phi have shapes {pt.shape}, {rapidity.shape} and {phi.shape}; expected one "
            "shape (n,) for all three"
        )
    total = float(pt.sum())
    if not total > 0:
        raise ValueError(f"correlators: the transverse momenta sum to {total}; expected a positive sum")
    z = pt / total
    pairs, triples, sides = _pairs_and_triples(pt.size)
    turn = np.abs(phi[pairs[0]] - phi[pairs[1]]) % (2 * np.pi)
    turn = np.minimum(turn, 2 * np.pi - turn)
    theta = np.hypot(rapidity[pairs[0]] - rapidity[pairs[1]], turn)
    weight2 = z[pairs[0]] * z[pairs[1]]
    weight3 = weight2[sides[0]] * z[triples[2]]
    ij, ik, jk = theta[sides[0]], theta[sides[1]], theta[sides[2]]
    # Sums are numpy's own, not a BLAS product: the same whatever the number of threads.
    smallest = np.minimum(np.minimum(ij, ik), jk)
    middle = np.maximum(np.minimum(ij, ik), np.minimum(np.maximum(ij, ik), jk))
    all_three = ij * ik * jk
    two_smallest = smallest * middle
    return Correlators(
        e2={0: float(weight2.sum()), 1: float((weight2 * theta).sum()), 2: float((weight2 * theta**2).sum())},
        e3={1: float((weight3 * all_three).sum()), 2: float((weight3 * all_three**2).sum())},
        e3_1={1: float((weight3 * smallest).sum()), 2: float((weight3 * smallest**2).sum())},
        e3_2={1: float((weight3 * two_smallest).sum()), 2: float((weight3 * two_smallest**2).sum())},
    )


def _ratio(numerator: float, denominator: float) -> float:
    """Return the quotient, and 0 where there is nothing to divide by (a jet of one particle)."""
    return numerator / denominator if denominator > 0 else 0.0


def kinematics(momenta: Array) -> tuple[Array, Array, Array]:
    """Return pT, rapidity and azimuth (radians), each (n,), of four-momenta ``(px, py, pz, E)`` of shape (n, 4)."""
    px, py, pz, energy = momenta.T
    return np.hypot(px, py), 0.5 * np.log((energy + pz) / (energy - pz)), np.arctan2(py, px)


def mass(momenta: Array) -> float:
    """Return the invariant mass, in the unit of ``momenta`` (n, 4) = ``(px, py, pz, E)``; rounding below 0 gives 0."""
    px, py, pz, energy = momenta.sum(axis=0)
    return float(np.sqrt(max(energy**2 - px**2 - py**2 - pz**2, 0.0)))


def observables(jet: Array, groomed: Array) -> Array:
    """Compute the 16 observables of one jet, in the order of :data:`FEATURES`.

    Parameters
    ----------
    jet:
        Four-momenta ``(px, py, pz, E)`` in GeV of all particles of the jet, float64 of shape (n, 4).
    groomed:
        Those that survive grooming, float64 of shape (m, 4), m <= n.

    Returns
    -------
    numpy.ndarray
        float64 of shape (16,). The mass is in GeV, everything else is dimensionless.
    """
    pt = kinematics(jet)[0]
    z = pt[pt > 0] / pt.sum()
    c = correlators(*kinematics(groomed))
    return np.array(
        [
            float((z * np.log(z)).sum()),
            c.e2[0],
            c.e2[1],
            c.e2[2],
            _ratio(c.e3[1], c.e2[1] ** 2),
            _ratio(c.e3[2], c.e2[2] ** 2),
            _ratio(c.e3[1], c.e2[1] ** 3),
            _ratio(c.e3[2], c.e2[2] ** 3),
            _ratio(c.e3[1], c.e2[1] ** 3),
            _ratio(c.e3[1], c.e2[2] ** 1.5),
            _ratio(c.e3_1[1], c.e2[1]),
            _ratio(c.e3_1[2], c.e2[2]),
            _ratio(c.e3_2[1], c.e2[1] ** 2),
            _ratio(c.e3_2[2], c.e2[2] ** 2),
            mass(groomed),
            float(len(jet)),
        ]
    )


def round_to_bits(values: Array, bits: int) -> NDArray[np.float32]:
    """Round to ``bits`` significant bits, ties to even; exact in float32 for ``bits`` <= 24. Any shape."""
    mantissa, exponent = np.frexp(values)
    rounded: NDArray[np.float64] = np.ldexp(np.rint(np.ldexp(mantissa, bits)), exponent - bits)
    return rounded.astype(np.float32)


# ---------------------------------------------------------------------------------------------------------------------
# Jets: fastjet and Pythia
# ---------------------------------------------------------------------------------------------------------------------


def groom(jet: Array, z_cut: float) -> Array:
    """Groom one jet by mMDT (Dasgupta et al., arXiv:1307.0007) on its Cambridge/Aachen tree.

    Parameters
    ----------
    jet:
        Four-momenta ``(px, py, pz, E)``, float64 of shape (n, 4).
    z_cut:
        A branching is kept when its softer branch carries at least this fraction of the summed pT. Following the
        harder branch where it does not, the first kept branching is the groomed jet.

    Returns
    -------
    numpy.ndarray
        The surviving particles, (m, 4), 1 <= m <= n, in the order of ``jet``. A single particle if no branching passes.
    """
    import fastjet

    particles = []
    for index, (px, py, pz, energy) in enumerate(jet.tolist()):
        particle = fastjet.PseudoJet(px, py, pz, energy)
        particle.set_user_index(index)
        particles.append(particle)
    # A radius beyond any distance inside the jet: everything ends in one tree.
    sequence = fastjet.ClusterSequence(particles, fastjet.JetDefinition(fastjet.cambridge_algorithm, 1000.0))
    branch = fastjet.sorted_by_pt(sequence.inclusive_jets())[0]
    first, second = fastjet.PseudoJet(), fastjet.PseudoJet()
    while branch.has_parents(first, second):
        hard, soft = (first.pt(), second.pt()) if first.pt() >= second.pt() else (second.pt(), first.pt())
        if soft >= z_cut * (hard + soft):
            break
        branch = fastjet.PseudoJet(first if first.pt() >= second.pt() else second)
    kept = sorted(particle.user_index() for particle in branch.constituents())
    return jet[kept]


@contextlib.contextmanager
def _captured_output() -> Iterator[None]:
    """Keep what C++ code prints (banners, statistics) off the screen; show it if the block fails."""
    sys.stdout.flush()
    with tempfile.TemporaryFile() as sink:
        saved = os.dup(1)
        os.dup2(sink.fileno(), 1)
        try:
            yield
        except BaseException as error:
            sink.seek(0)
            error.add_note("Output of Pythia and FastJet:\n" + sink.read().decode(errors="replace")[-4000:])
            raise
        finally:
            os.dup2(saved, 1)
            os.close(saved)


def _pythia(settings: tuple[str, ...]) -> Any:
    import pythia8mc

    pythia = pythia8mc.Pythia("", False)
    for setting in settings:
        if not pythia.readString(setting):
            raise ValueError(f"Pythia does not know the setting {setting!r}; expected one of pythia8mc 8.316")
    return pythia


def _undecayed(hard: Any, scale: float) -> Any:
    """Return a Les Houches source of ``hard``'s events (incoming and outgoing particles), with shower scale in GeV."""
    import pythia8mc

    class Source(pythia8mc.LHAup):
        def setInit(self) -> bool:
            beam = hard.settings.parm("Beams:eCM") / 2
            self.setBeamA(2212, beam)
            self.setBeamB(2212, beam)
            self.setStrategy(3)
            self.addProcess(1, 1.0, 0.0, 1.0)
            return True

        def setEvent(self, process: int = 0) -> bool:
            # Pythia's phase-space generator fails once in a while; ending the run then would be wrong.
            if not any(hard.next() for _ in range(10)):
                return False
            info = hard.infoPython()
            self.setProcess(1, 1.0, scale, info.alphaEM(), info.alphaS())
            for index in range(3, hard.process.size()):
                particle = hard.process[index]
                incoming = particle.status() == -21
                self.addParticle(
                    particle.id(),
                    -1 if incoming else 1,
                    0 if incoming else 1,
                    0 if incoming else 2,
                    particle.col(),
                    particle.acol(),
                    particle.px(),
                    particle.py(),
                    particle.pz(),
                    particle.e(),
                    particle.m(),
                    0.0,
                    9.0,
                )
            self.setIdX(info.id1(), info.id2(), info.x1(), info.x2())
            return True

    return Source()


def jets(recipe: Recipe, name: str, block: int) -> Iterator[tuple[Array, Array]]:
    """Yield the jets of one block of one class, endlessly: the particles of each, and those that survive grooming.

    Parameters
    ----------
    recipe:
        The settings.
    name:
        One of :data:`CLASSES`.
    block:
        Number of the block, which decides the seeds.

    Yields
    ------
    tuple of numpy.ndarray
        Four-momenta ``(px, py, pz, E)`` in GeV, float64 of shapes (n, 4) and (m, 4).

    Raises
    ------
    RuntimeError
        If Pythia cannot start, or fails in a hundred events of the block.
    """
    import pythia8mc

    hard = _pythia(recipe.hard_settings(name, block))
    event = _pythia(recipe.event_settings(name, block))
    source = _undecayed(hard, recipe.shower_scale_gev)
    where = f"class {name!r}, block {block}"
    if not (hard.init() and event.setLHAupPtr(source) and event.init()):
        raise RuntimeError(f"{where}: Pythia does not start; expected it to with the settings of the recipe")
    low, high = recipe.jet_pt_gev
    # Pythia's interface to its own copy of FastJet: anti-kT (-1), visible particles (2), with their masses (2).
    finder = pythia8mc.SlowJet(-1, recipe.radius, low, recipe.max_rapidity, 2, 2)
    failures = 0
    while True:
        if not event.next():
            failures += 1
            if failures >= 100:
                raise RuntimeError(f"{where}: Pythia failed in {failures} events; expected a failure only now and then")
            continue
        finder.analyze(event.event)
        for index in range(min(finder.sizeJet(), 2)):
            if finder.pT(index) >= high:
                continue
            particles = [event.event[i] for i in sorted(finder.constituents(index))]
            jet = np.array([(p.px(), p.py(), p.pz(), p.e()) for p in particles])
            yield jet, groom(jet, recipe.z_cut)


def simulate_block(recipe: Recipe, name: str, block: int, count: int) -> NDArray[np.float32]:
    """Simulate the first ``count`` jets of one block; return their observables, rounded, float32 (count, 16)."""
    with _captured_output():
        rows = [observables(*pair) for pair in itertools.islice(jets(recipe, name, block), count)]
    return round_to_bits(np.array(rows), recipe.significant_bits)


def _simulate_job(job: tuple[Recipe, str, int, int]) -> NDArray[np.float32]:
    return simulate_block(*job)


def simulate(recipe: Recipe, count: int | None = None, jobs: int = 1) -> NDArray[np.float32]:
    """Simulate the first ``count`` jets of a recipe (all of them by default).

    Parameters
    ----------
    recipe:
        The settings.
    count:
        Number of jets, at most ``recipe.jets``.
    jobs:
        Processes to use. The result does not depend on it.

    Returns
    -------
    numpy.ndarray
        float32 of shape (count, 16); row ``r`` is of class ``CLASSES[r % 5]``.
    """
    total = recipe.jets if count is None else count
    if not 1 <= total <= recipe.jets:
        raise ValueError(f"simulate: count is {total}; expected 1 to {recipe.jets}, the number of jets of the recipe")
    out = np.empty((total, len(FEATURES)), dtype=np.float32)
    plan: list[tuple[slice, tuple[Recipe, str, int, int]]] = []
    for column, name in enumerate(CLASSES):
        wanted = len(range(column, total, len(CLASSES)))
        for block, start in enumerate(range(0, wanted, recipe.block)):
            size = min(recipe.block, wanted - start)
            rows = slice(column + len(CLASSES) * start, column + len(CLASSES) * (start + size - 1) + 1, len(CLASSES))
            plan.append((rows, (recipe, name, block, size)))
    with contextlib.ExitStack() as stack:
        run = map if jobs == 1 else stack.enter_context(ProcessPoolExecutor(jobs)).map
        for done, ((rows, job), values) in enumerate(
            zip(plan, run(_simulate_job, [job for _, job in plan]), strict=True), start=1
        ):
            out[rows] = values
            print(f"block {done} of {len(plan)}: {job[3]} {job[1]} jets", file=sys.stderr, flush=True)
    return out


# ---------------------------------------------------------------------------------------------------------------------
# Files
# ---------------------------------------------------------------------------------------------------------------------


def write_parquet(values: NDArray[np.float32], path: Path) -> None:
    """Write jets (n, 16) with their classes as Parquet; same values and pyarrow version, same bytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    labels = pa.DictionaryArray.from_arrays(
        pa.array((np.arange(len(values)) % len(CLASSES)).astype(np.int8)),
        pa.array(CLASSES),
    )
    columns = {name: pa.array(np.ascontiguousarray(values[:, i])) for i, name in enumerate(FEATURES)}
    pq.write_table(
        pa.table({**columns, LABEL: labels}),
        path,
        compression="zstd",
        compression_level=19,
        use_dictionary=[LABEL],
        # The bytes of equal significance side by side: the rounded-off ones are all zero, the exponents nearly equal.
        column_encoding=dict.fromkeys(FEATURES, "BYTE_STREAM_SPLIT"),
        row_group_size=len(values),
    )


def sha256(path: Path) -> str:
    """Return the hexadecimal SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def describe(recipe: Recipe, values: NDArray[np.float32], path: Path) -> dict[str, Any]:
    """Return what ``jets.json`` holds: recipe, settings, versions, hash, size and medians per class."""
    return {
        "file": path.name,
        "sha256": sha256(path),
        "bytes": path.stat().st_size,
        "rows": len(values),
        "features": list(FEATURES),
        "classes": list(CLASSES),
        "versions": {name: importlib.metadata.version(name) for name in PACKAGES},
        "recipe": asdict(recipe),
        "settings": {
            name: {
                "hard_process": list(recipe.hard_settings(name, 0)),
                "event": list(recipe.event_settings(name, 0)),
            }
            for name in CLASSES
        },
        "medians": {
            name: dict(
                zip(FEATURES, (float(f"{v:.5g}") for v in np.median(values[i :: len(CLASSES)], axis=0)), strict=True)
            )
            for i, name in enumerate(CLASSES)
        },
    }


def read_recipe(path: Path) -> Recipe:
    """Return the recipe stored in a ``jets.json``."""
    stored = json.loads(path.read_text(encoding="utf-8"))["recipe"]
    fields: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in stored.items()}
    return Recipe(**fields)


def read_parquet(path: Path) -> NDArray[np.float32]:
    """Return the observables of a shipped file, float32 (n, 16)."""
    import pyarrow.parquet as pq

    table = pq.read_table(path, columns=list(FEATURES))
    return np.stack([column.to_numpy() for column in table.columns], axis=1)


def check(count: int, folder: Path = HERE) -> None:
    """Regenerate the first ``count`` jets of the shipped file and compare every value with ``==``.

    Raises
    ------
    ValueError
        If a value differs: names the first jet and column, with both values and the versions in use and recorded.
    """
    note = json.loads((folder / "jets.json").read_text(encoding="utf-8"))
    shipped = read_parquet(folder / note["file"])[:count]
    made = simulate(read_recipe(folder / "jets.json"), count)
    wrong = np.argwhere(made != shipped)
    if len(wrong):
        row, column = wrong[0]
        versions = ", ".join(
            f"{name} {importlib.metadata.version(name)} (recorded: {recorded})"
            for name, recorded in note["versions"].items()
        )
        raise ValueError(
            f"jets: {len(np.unique(wrong[:, 0]))} of {count} regenerated jets differ from the shipped ones; the first "
            f"is jet {row} (class {CLASSES[row % len(CLASSES)]}), {FEATURES[column]}: made {made[row, column]!r}, "
            f"shipped {shipped[row, column]!r}. Installed: {versions}. Install the recorded versions, or ship a new "
            "file"
        )


def main(arguments: list[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", type=int, metavar="N", help="regenerate the first N jets and compare; write nothing")
    parser.add_argument("--jobs", type=int, default=1, help="processes to use; the result does not depend on it")
    parser.add_argument("--jets", type=int, default=Recipe.jets, help="number of jets (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=HERE, help="folder to write to (default: beside this script)")
    options = parser.parse_args(arguments)
    if options.check is not None:
        check(options.check)
        print(f"{options.check} jets regenerated: equal to the shipped ones")
        return
    recipe = Recipe(jets=options.jets)
    values = simulate(recipe, jobs=options.jobs)
    path = options.out / "jets.parquet"
    # Written beside and renamed: the file is complete or absent.
    partial = path.with_suffix(".partial")
    write_parquet(values, partial)
    partial.replace(path)
    note = describe(recipe, values, path)
    (options.out / "jets.json").write_text(json.dumps(note, indent=2) + "\n", encoding="utf-8")
    print(f"{path}: {note['rows']} jets, {note['bytes']} bytes, sha256 {note['sha256']}")


if __name__ == "__main__":
    main()
