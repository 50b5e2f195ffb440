# Two commands for everyone: `make demo` and `make test`.  They need Python 3.11+, make and git.
PYTHON ?= python3
BIN := .venv/bin
NEWEST_BIN := .venv-newest/bin
NEWEST_READY = .venv-newest/ready-$(notdir $(NEWEST_PYTHON))
SECONDS ?= 10
PART ?= logs
HOURS ?= 1

.PHONY: demo test test-newest test-without-spark check bench campaign docs proto clean

demo: .venv/ready
	$(BIN)/holdfast demo $(DEMO_ARGS)

test: .venv/ready
	$(BIN)/pytest -n 2 $(TEST_ARGS)

# The tests without Spark, on the newest Python of this machine.  NEWEST_PYTHON= names another.
# The site's reference pages import Spark.
test-newest:
	@newest=$$(.ci/newest-python $(PYTHON)) && if [ -n "$$newest" ]; then \
	    $(MAKE) --no-print-directory test-without-spark NEWEST_PYTHON="$$newest"; fi

test-without-spark: $(NEWEST_READY)
	$(NEWEST_BIN)/python --version
	$(NEWEST_BIN)/pytest -n 2 -m 'not spark' --ignore=tests/spark --ignore=tests/docs/test_site.py $(TEST_ARGS)

check: .venv/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: .venv/ready
	$(BIN)/python -m benchmarks $(PART)

# Every kind of test with new seeds, on all cores; adds to docs/reliability.md.  HOURS may be 0.05.
campaign: .venv/ready
	$(BIN)/python -m campaign --hours $(HOURS)

docs: .venv/ready
	$(BIN)/python docs/build.py
	$(BIN)/mkdocs build --quiet --strict
	@echo 'build/site/index.html'

proto: .venv/ready
	$(BIN)/python -m grpc_tools.protoc -Isrc --python_out=src --pyi_out=src src/holdfast/formats/manifest/manifest.proto

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,docs,bench,spark,declarative,pysyncobj,sql,dynamodb]'
	touch $@

# Named after its Python: another one begins anew.
$(NEWEST_READY): pyproject.toml constraints.txt
	$(NEWEST_PYTHON) -m venv --clear .venv-newest
	$(NEWEST_BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,pysyncobj,sql,dynamodb]'
	touch $@

clean:
	rm -rf .venv .venv-newest .mypy_cache .ruff_cache .pytest_cache .hypothesis
