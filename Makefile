# ruvllm - the front door. `make run` chats with the default model, `make test` checks everything; both install what is missing (Debian packages by
# name, as root or with sudo), so they work on a bare Debian 12.
#
#   make                 build ./ruvllm, build/libruvllm.a and build/libruvllm.so
#   make run [MODEL=x]   chat with a model: a .gguf file, a model directory, or a name from `ruvllm list`
#   make test            every test, then the fast ones again under ASan and UBSan
#   make tsan            the threaded tests under TSan          make fuzz      every parser under libFuzzer (FUZZ_SECONDS=300 each)
#   make bench           speed of the kernels, one core
#   make cross           build for aarch64, test under qemu     make check     layers and banned calls
#   make conformance DATA=folder   third-party vocabularies, templates and models (see tests/conformance/README.md)

CC      ?= gcc
BUILD   ?= build
BIN     ?= ruvllm
MODEL   ?= smollm2
OPT     ?= -O2 -g
VERSION := 0.1.0
SONAME  := libruvllm.so.0
MACHINE := $(shell $(CC) -dumpmachine 2>/dev/null | cut -d- -f1)
JOBS    := $(shell nproc 2>/dev/null || echo 1)

# _GNU_SOURCE: base/ asks the system for affinity masks and the like; other rooms make no POSIX calls (tools/check_layers).
CPPFLAGS += -Iinclude -Isrc -D_GNU_SOURCE -DRVI_VERSION='"$(VERSION)"'
CFLAGS   += -std=c11 $(OPT) -fPIC -fvisibility=hidden -ffp-contract=off -pthread -Wall -Wextra -Wpedantic -Wshadow -Wconversion $(SAN)
LDFLAGS  += -pthread $(SAN)
LIBS     := -lm
HUB_LIBS := -lz -lcrypto

# --- sources: the rooms, lowest floor first ---
CORE_ROOMS  := base formats kernels backend/cpu kv lora model tokenizer template decode api
SHELL_ROOMS := hub cli
CORE_SRC    := $(foreach room,$(CORE_ROOMS),$(sort $(wildcard src/$(room)/*.c)))
SHELL_SRC   := $(foreach room,$(SHELL_ROOMS),$(sort $(wildcard src/$(room)/*.c)))
TEST_SRC    := $(sort $(wildcard tests/*/test_*.c))
TEST_SH     := $(sort $(wildcard tests/*/test_*.sh))
FUZZ_SRC    := $(sort $(wildcard tests/fuzz/fuzz_*.c))
CORE_OBJ    := $(CORE_SRC:%.c=$(BUILD)/%.o)
SHELL_OBJ   := $(SHELL_SRC:%.c=$(BUILD)/%.o)
TEST_BIN    := $(TEST_SRC:%.c=$(BUILD)/%)

# Tests that take long or need the real model; the sanitizer pass leaves them out.
SLOW_TESTS   := tests/model/test_law tests/real/%
FAST_BIN     := $(filter-out $(SLOW_TESTS:%=$(BUILD)/%),$(TEST_BIN))
THREAD_TESTS := tests/base/test_pool tests/model/test_golden tests/api/test_api

# --- one row of compiler flags per ISA; a file for another CPU family compiles to nothing ---
ifeq ($(MACHINE),x86_64)
$(BUILD)/src/kernels/avx2%.o: CFLAGS += -mavx2 -mfma -mf16c
endif

.PHONY: all run test test-programs tsan fuzz fuzz-programs cross bench check conformance conformance-programs deps model clean
all: $(BIN) $(BUILD)/libruvllm.a $(BUILD)/libruvllm.so

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	@echo "  CC  $<"
	@$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c $< -o $@

$(BUILD)/libruvllm.a: $(CORE_OBJ)
	@rm -f $@ && ar rcs $@ $^

$(BUILD)/libruvllm.so: $(CORE_OBJ)
	@$(CC) -shared -Wl,-soname,$(SONAME) $(LDFLAGS) $^ $(LIBS) -o $@

$(BIN): $(SHELL_OBJ) $(BUILD)/libruvllm.a
	@echo "  LD  $@"
	@$(CC) $(LDFLAGS) $^ $(HUB_LIBS) $(LIBS) -o $@

# --- tests: one program a file; test_alloc_* can make any allocation fail ---
TEST_CPPFLAGS := -Itests
WRAP := -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=aligned_alloc
$(BUILD)/tests/%.o: CPPFLAGS += $(TEST_CPPFLAGS)
HUB_OBJ = $(filter $(BUILD)/src/hub/%,$(SHELL_OBJ))

define link_test
@mkdir -p $(@D)
@echo "  LD  $@"
@$(CC) $(LDFLAGS) $(1) $< $(HUB_OBJ) $(BUILD)/libruvllm.a -lcmocka $(HUB_LIBS) $(LIBS) -o $@
endef

.SECONDEXPANSION:
$(TEST_BIN): $(BUILD)/%: $(BUILD)/%.o $$(HUB_OBJ) $(BUILD)/libruvllm.a
	$(call link_test,$(if $(findstring /test_alloc_,$@),$(WRAP)))

test-programs: $(if $(ONLY_FAST),$(FAST_BIN),$(TEST_BIN))

RESULTS := build/results
test: deps
	@rm -f $(RESULTS) && mkdir -p build
	@$(MAKE) --no-print-directory -j$(JOBS) all test-programs
	@$(MAKE) --no-print-directory model MODEL=smollm2 || echo "the default model cannot be had here: the tests that need it are skipped"
	@RESULTS=$(RESULTS) tools/run_tests $(TEST_BIN) $(TEST_SH) || true
	@echo "--- the fast tests under ASan and UBSan"
	@$(MAKE) --no-print-directory -j$(JOBS) test-programs ONLY_FAST=1 BUILD=build/asan BIN=build/asan/ruvllm \
	  SAN="-fsanitize=address,undefined -fno-sanitize-recover=all" OPT="-O1 -g"
	@RESULTS=$(RESULTS) tools/run_tests --label asan $(FAST_BIN:build/%=build/asan/%) || true
	@tools/run_tests --total $(RESULTS)

tsan: deps
	@$(MAKE) --no-print-directory -j$(JOBS) $(THREAD_TESTS:%=build/tsan/%) BUILD=build/tsan BIN=build/tsan/ruvllm SAN=-fsanitize=thread OPT="-O1 -g"
	@tools/run_tests --label tsan $(THREAD_TESTS:%=build/tsan/%)

# --- fuzzers ---
FUZZ_SECONDS ?= 300
FUZZ_BIN := $(FUZZ_SRC:%.c=$(BUILD)/%)
$(FUZZ_BIN): $(BUILD)/%: $(BUILD)/%.o $(BUILD)/libruvllm.a
	@$(CC) $(LDFLAGS) -fsanitize=fuzzer $^ $(LIBS) -o $@
fuzz-programs: $(FUZZ_BIN)
fuzz:
	@tools/install_deps clang
	@$(MAKE) --no-print-directory -j$(JOBS) fuzz-programs CC=clang BUILD=build/fuzz SAN="-fsanitize=address,undefined,fuzzer-no-link -fno-sanitize-recover=all" OPT="-O1 -g"
	@tools/run_fuzzers $(FUZZ_SECONDS) $(FUZZ_SRC:%.c=build/fuzz/%)

# --- the other CPU family ---
CROSS_CC ?= aarch64-linux-gnu-gcc
cross:
	@tools/install_deps cross
	@$(MAKE) --no-print-directory -j$(JOBS) all test-programs CC=$(CROSS_CC) BUILD=build/aarch64 BIN=build/aarch64/ruvllm ONLY_FAST=1
	@rm -f build/results-aarch64
	@RESULTS=build/results-aarch64 RUNNER=qemu-aarch64 TEST_TIMEOUT=900 \
	  tools/run_tests --label aarch64 $(FAST_BIN:build/%=build/aarch64/%) || true
	@tools/run_tests --total build/results-aarch64

$(BUILD)/bench/kernels: $(BUILD)/bench/kernels.o $(BUILD)/libruvllm.a
	@$(CC) $(LDFLAGS) $^ $(LIBS) -o $@
bench: deps
	@$(MAKE) --no-print-directory -j$(JOBS) $(BUILD)/bench/kernels
	@$(BUILD)/bench/kernels

check:
	@tools/check_layers

# --- the rest of the world ---
deps:
	@tools/install_deps build

# A name from the catalogue is fetched once; files and directories are taken as they are.
model: $(BIN)
	@if [ ! -e "$(MODEL)" ]; then ./$(BIN) pull "$(MODEL)" >/dev/null; fi

run: deps
	@$(MAKE) --no-print-directory -j$(JOBS) $(BIN) >&2
	@$(MAKE) --no-print-directory model
	@./$(BIN) run "$(MODEL)"

CONFORMANCE := $(patsubst %.c,$(BUILD)/%,$(wildcard tests/conformance/*.c))
$(CONFORMANCE): $(BUILD)/%: $(BUILD)/%.o $(BUILD)/libruvllm.a
	@$(CC) $(LDFLAGS) $^ $(LIBS) -o $@
conformance-programs: $(CONFORMANCE)
conformance: deps
	@test -n "$(DATA)" || { echo "make conformance DATA=folder (see tests/conformance/README.md)"; exit 2; }
	@$(MAKE) --no-print-directory -j$(JOBS) all conformance-programs
	@$(MAKE) --no-print-directory model
	@tests/conformance/run "$(DATA)"

clean:
	rm -rf build ruvllm

-include $(wildcard $(BUILD)/src/*/*.d $(BUILD)/src/*/*/*.d $(BUILD)/tests/*/*.d $(BUILD)/bench/*.d)
