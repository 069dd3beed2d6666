# Every target makes its own virtual environment and installs what it needs; the second time is quick.
PYTHON ?= python3
VENV ?= .venv
# AUTO builds the CUDA kernels where nvcc is found; ON requires it; OFF skips it.
PACKEDTRI_CUDA ?= AUTO
# OFF compiles them in a tenth of the time, for machines that will not run them.
PACKEDTRI_CUDA_OPTIMIZE ?= ON
DEMO_OUTPUT ?= demo-output
BENCH_OUTPUT ?= bench-output
# Two processes, one torch thread each: the suite is many small tests.
PYTEST_ARGS ?= -n 2

BIN := $(VENV)/bin
# Stamps name the interpreter's packages: `run` builds and runs, `dev` also lints, tests, documents.
RUN_READY := $(VENV)/.run-ready
DEV_READY := $(VENV)/.dev-ready

.DEFAULT_GOAL := help
.PHONY: help demo test build wheel lint format typecheck docs bench clean

help:  ## Show this list.
	@sed -n 's/^\([a-z][a-z]*\):.*##  *\(.*\)/\1\t\2/p' Makefile | expand -t 12

demo: build  ## Compare packed and dense on a real covariance; results go to demo-output/.
	$(BIN)/python -m packedtri demo --output $(DEMO_OUTPUT)

# Hooks and docs keep one core busy each. pytest comes last, so that its summary closes the output.
test: build  ## Build, lint, type-check, build the docs and run all tests.
	$(MAKE) -j 2 --output-sync=target lint docs
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(PYTEST_ARGS)

build: $(RUN_READY)  ## Compile the libraries into packedtri/ of this source tree.
	PATH="$(abspath $(BIN)):$$PATH" cmake -S . -B build -G Ninja \
	  -DCMAKE_BUILD_TYPE=Release -DPACKEDTRI_CUDA=$(PACKEDTRI_CUDA) \
	  -DPACKEDTRI_CUDA_OPTIMIZE=$(PACKEDTRI_CUDA_OPTIMIZE) \
	  -DPython_EXECUTABLE="$(abspath $(BIN))/python"
	PATH="$(abspath $(BIN)):$$PATH" cmake --build build
	PATH="$(abspath $(BIN)):$$PATH" cmake --install build --prefix .

wheel: $(RUN_READY)  ## Build the wheel, for every Python >= 3.10, into dist/.
	PACKEDTRI_CUDA=$(PACKEDTRI_CUDA) PACKEDTRI_CUDA_OPTIMIZE=$(PACKEDTRI_CUDA_OPTIMIZE) \
	  $(BIN)/python -m pip wheel --no-build-isolation --no-deps \
	  --wheel-dir dist .

lint: $(DEV_READY)  ## Run the hooks: ruff, mypy, clang-format.
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/pre-commit run --all-files

format: $(DEV_READY)  ## Rewrite the sources in the project's format.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	git ls-files '*.cpp' '*.h' '*.cu' '*.cuh' | xargs $(BIN)/clang-format -i

docs: build $(DEV_READY)  ## Build the documentation into docs/_build/html, warnings are errors.
	$(BIN)/python -m sphinx -j auto -W --keep-going -n -q -b html docs docs/_build/html

bench: build  ## Benchmark against dense torch on this machine; results go to bench-output/.
	$(BIN)/python -m packedtri bench --output $(BENCH_OUTPUT)

clean:  ## Remove everything that was built; the virtual environment stays.
	rm -rf build dist docs/_build $(DEMO_OUTPUT) $(BENCH_OUTPUT) packedtri/*.so

# Dependency groups need pip >= 25.1, which the interpreter's own need not be.
$(VENV)/.created:
	$(PYTHON) -c 'import sys; sys.exit("packedtri needs Python >= 3.10" if sys.version_info < (3, 10) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet pip==26.3
	touch $@

$(RUN_READY): $(VENV)/.created pyproject.toml
	$(BIN)/python -m pip install --quiet --group run
	touch $@

$(DEV_READY): $(RUN_READY) pyproject.toml
	$(BIN)/python -m pip install --quiet --group dev
	touch $@
