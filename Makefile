# Two commands do all the set-up: `make demo` and `make test`. Everything else is a convenience.
export OMP_NUM_THREADS := 1
export HF_HUB_OFFLINE := 1
PY := .venv/bin/python

.PHONY: demo test quick bench lint setup size docs clean

demo: setup            ## run both walks end to end on embedded defaults
	@$(PY) scripts/demo.py

test: setup lint       ## everything CI runs
	$(PY) -m pytest -n auto

quick: setup           ## the tests that take seconds
	$(PY) -m pytest -n auto -m "not slow"

bench: setup           ## ratios against peers and the physical floor; run on a quiet machine
	@env -u OMP_NUM_THREADS $(PY) benchmarks/scoring.py
	@env -u OMP_NUM_THREADS $(PY) benchmarks/loading.py
	@env -u OMP_NUM_THREADS $(PY) benchmarks/encoding.py

lint: setup
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy

setup:
	@scripts/setup

size: setup            ## lines per file and per function against the budget
	@$(PY) scripts/size.py

docs: setup            ## regenerate docs/cli.md and the tree in README.md
	@$(PY) scripts/docs.py

clean:
	rm -rf .venv demo build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
