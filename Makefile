# Two commands: `make demo` shows the product, `make test` checks it. Both do all set-up in .venv.
# `make test PART=gateway` runs tests/gateway.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMPS := .setup
# Most tests wait for servers: there are more workers than cores.
WORKERS ?= 4
NSQ_PROGRAMS := nsqd nsqlookupd nsqadmin nsq_stat nsq_tail nsq_to_file to_nsq
NSQ_MODULE := srtm/deploy/binaries
KAFKA_POM := srtm/kafka/kafka_pom.xml
SPARK_POM := srtm/correlation/spark_pom.xml
CLANG := $(shell sed -n 's/^CLANG = "\(.*\)"$$/\1/p' setup.py)
HOT := $(shell sed -n 's/^    "\(.*\.py\)",$$/\1/p' setup.py)

# The compiler works on one core; linters and downloads take the other.
MAKEFLAGS += --jobs=2

# Compiled modules are kept, whatever the shell says: a run of the tests starts hundreds of Pythons.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test pytest setup docs lint style types lock clean

demo: setup
	@$(BIN)/srtm demo

test: setup style
	@$(MAKE) --no-print-directory types pytest

# Types take a minute of one core, and have an empty cache in a new clone: tests begin beside them.
pytest:
	@$(BIN)/python -m pytest -n $(WORKERS) --no-loadscope-reorder $(PART:%=tests/%)

# What the pages say of the code's tables.
docs: setup
	@$(BIN)/python -m tests.docs.generated
	@$(BIN)/python -m tests.docs.interface
	@$(BIN)/python -m benchmarks keep

lint: style types

style: $(STAMPS)/python
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(STAMPS)/python
	@$(BIN)/mypy

setup: $(STAMPS)/python $(STAMPS)/compiled $(STAMPS)/program $(STAMPS)/nsq $(STAMPS)/kafka.fetched $(STAMPS)/spark.fetched

# The jars of a pom, in a folder. Maven ends its lines with the codes of a terminal's colours, whatever it
# is told, so what it says is shown only where it fails.
define fetch_jars
said=$$(mvn -q -B -f $(1) dependency:copy-dependencies -DoutputDirectory=$(abspath $(2)) 2>&1) || { echo "$$said" >&2; exit 1; }
endef

# uv installs in a third of pip's time. Where it is not to be had, or fails, pip does it, and says what is wrong.
install = { $(BIN)/pip install --quiet --disable-pip-version-check uv 2>/dev/null && \
	UV_SYSTEM_CERTS=1 VIRTUAL_ENV=$(abspath $(VENV)) $(BIN)/uv pip install --quiet $(1) 2>/dev/null; } || \
	$(BIN)/pip install --quiet --disable-pip-version-check $(1)

$(STAMPS)/python: requirements.lock pyproject.toml
	@test "$$(uname -s)" = Linux || { echo "SRTM runs on Linux only (epoll, timerfd, kernel time stamps)" >&2; exit 3; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { echo "Python 3.11 or newer is needed as $(PYTHON); name another with make PYTHON=/path/to/python3" >&2; exit 3; }
	@echo "setting up $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@$(call install,--require-hashes -r requirements.lock)
	@mkdir -p $(STAMPS) && touch $@

# The hot modules, compiled where a C compiler is there (setup.py says which and why).
$(STAMPS)/compiled: setup.py pyproject.toml $(HOT) srtm/gateway/_sender.c $(STAMPS)/python
	@echo "installing srtm, its hot modules compiled"
	@command -v cc >/dev/null || echo "no C compiler (cc): the hot modules are interpreted and answers sent one by one, a fifth slower for each message"
	@find srtm kernel -name '*.cpython-*.so' -delete; rm -f ./*__mypyc.*.so
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

# The kernel's program. Without clang no stamp is left: the next make setup looks again.
$(STAMPS)/program: kernel/segments.bpf.c setup.py | $(STAMPS)/python
	@if command -v clang >/dev/null; then echo "building kernel/segments.bpf.o"; $(CLANG) kernel/segments.bpf.o && touch $@; \
	else echo "no clang: kernel/segments.bpf.o is not built, timestamps fall back to sockopt"; fi

$(STAMPS)/nsq: $(NSQ_MODULE)/go.mod $(NSQ_MODULE)/go.sum | $(STAMPS)/python
	@missing=; for p in $(NSQ_PROGRAMS); do command -v $$p >/dev/null || missing="$$missing $$p"; done; \
	if [ -z "$$missing" ]; then echo "NSQ: taken from the PATH"; \
	elif command -v go >/dev/null; then echo "NSQ 1.3.0: building$$missing"; \
	  cd $(NSQ_MODULE) && GOBIN=$(abspath $(BIN)) go install tool; \
	else echo "not found:$$missing. Put NSQ 1.3.0's programs on the PATH, or install Go and run make setup again" >&2; exit 3; fi
	@mkdir -p $(STAMPS) && touch $@

# Kafka, for the demo, and for tests and benchmarks of the bridge. Without Java or Maven no stamp is left, as above.
$(STAMPS)/kafka.fetched: $(KAFKA_POM) | $(STAMPS)/python
	@if command -v java >/dev/null && command -v mvn >/dev/null; then echo "Kafka 4.3: fetching its jars"; rm -rf $(STAMPS)/kafka; \
	  $(call fetch_jars,$(KAFKA_POM),$(STAMPS)/kafka); touch $@; \
	else echo "no java or no mvn: Kafka is not fetched, and what needs it is skipped (srtm bridge)"; fi

# Spark's Kafka connector, for srtm correlate stream. Spark's own fetching knows no Maven settings.
$(STAMPS)/spark.fetched: $(SPARK_POM) | $(STAMPS)/python
	@if command -v mvn >/dev/null; then echo "Spark 4.2: fetching its Kafka connector"; rm -rf $(STAMPS)/spark; \
	  $(call fetch_jars,$(SPARK_POM),$(STAMPS)/spark); touch $@; \
	else echo "no mvn: Spark's Kafka connector is not fetched (srtm correlate stream from Kafka)"; fi

# The lock file, made anew from pyproject.toml.
lock: $(STAMPS)/python
	@$(BIN)/pip install --quiet uv
	@$(BIN)/uv pip compile --quiet pyproject.toml --extra plots --extra kafka --extra keda --extra kubernetes --extra spark --group dev --generate-hashes --universal --python-version 3.11 --custom-compile-command "make lock" -o requirements.lock

clean:
	rm -rf $(VENV) $(STAMPS) out build srtm.egg-info
	find srtm kernel \( -name '*.so' -o -name '*.bpf.o' \) -delete
