# Two commands: `make demo` (the main job, to a verified firmware project) and `make test`. Both set up .venv first.
PYTHON ?= $(firstword $(shell command -v python3.11 2>/dev/null) python3)
VENV := .venv
BIN := $(VENV)/bin
# Tests run in as many processes as there are processors, file by file: what a file's tests share is made once.
WORKERS := -n auto --maxprocesses 8 --dist loadfile
EXPERIMENT ?= experiments/jets/experiment.toml
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo test test-slow lint study bench calibrate equality-all setup clean

demo: setup
	$(BIN)/hawq-flow run $(EXPERIMENT)

test: setup lint
	$(BIN)/python -m pytest -q -m "not slow" $(WORKERS)

test-slow: setup
	$(BIN)/python -m pytest -q -m slow $(WORKERS)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Five seeds of every plan against the float network, on the same test jets.
study: setup
	$(BIN)/python experiments/jets/study.py

# Every experiment to its proof of equality, in one table (an hour or more; what is there is reused).
equality-all: setup
	$(BIN)/python experiments/equality_all.py

# 64 random plans of the jet MLP, synthesized by Yosys, against their estimates (an hour or two; what is there is reused).
calibrate: setup
	$(BIN)/hawq-flow run $(EXPERIMENT) --until float
	$(BIN)/python experiments/calibrate.py

# One JSON object a line: ours, the peer, the ratio. Installs the peers (extra `bench`) first.
bench: $(VENV)/.bench
	@for file in benchmarks/bench_*.py; do $(BIN)/python $$file || exit 1; done

setup: $(VENV)/.complete

$(VENV)/.complete: pyproject.toml constraints.txt
	@command -v g++ >/dev/null || { echo "hawq_flow: g++ not found; it compiles the HLS C simulation. Install it (Debian: apt-get install g++) and run make again." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { echo "hawq_flow: $(PYTHON) is missing or older than Python 3.11. Install Python 3.11, or name one: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "hawq_flow: $(PYTHON) has no venv module. Install it (Debian: apt-get install python3-venv) and run make again." >&2; exit 1; }
	@echo "hawq_flow: setting up $(VENV) (a minute or two)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -q -c constraints.txt -e ".[test,notebooks]"
	@touch $@

$(VENV)/.bench: $(VENV)/.complete
	@$(BIN)/python -m pip install -q -c constraints.txt -e ".[bench]"
	@touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
