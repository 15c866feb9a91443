# ruvllm - `make run` serves the default model and chats with it, `make test` tests; both install
# what is missing (Debian packages by name, as root or with sudo), so they work on a bare Debian 12.
#
#   make                 build ./ruvllm, build/libruvllm.a and build/libruvllm.so
#   make CUDA=1          the same with kernels for NVIDIA GPUs (needs nvcc; fetched if missing);
#                        the tree remembers it: make install, say, installs them; make CUDA= ends it
#   make run [MODEL=x] [PORT=n]   a server with a model, a chat beside it; x is a .gguf file, a
#                        model directory, or a name from `ruvllm list`
#   make chat [MODEL=x]  the chat alone
#   make test            what you run all day: the rules of `make check`, the fast tests, a real
#                        model; about a minute once built
#   make test-all        that, the slow tests, and tests under ASan and UBSan
#   make clients         client libraries of PyPI and npm against the server
#   make check           layers, banned calls, format, exported symbols, unused functions
#   make tsan            the threaded tests under TSan
#   make lives           ten thousand random lives of requests under TSan, and under ASan
#   make fuzz            every parser under libFuzzer (FUZZ_SECONDS=300 each)
#   make cross           build for aarch64, test under qemu
#   make sanitize-cuda   the kernels under compute-sanitizer, on this machine's NVIDIA GPU
#   make wasm-check      the library as WebAssembly under node: the same bits as the native build
#   make bench           speed of the kernels and of training, one core
#   make examples        build/examples, one program for each file of examples/
#   make format          clang-format of every C file, Markdown at 100 columns
#   make install         program, library, header, manual page, completions, licences under PREFIX
#                        (/usr/local; DESTDIR, LIBDIR); make uninstall
#   make deb             build/deb/ruvllm_VERSION_ARCH.deb, with a systemd service
#   make release         build/release/ruvllm-VERSION-linux-ARCH.tar.gz: a program that needs
#                        nothing but the C library
#   make conformance DATA=folder   third-party vocabularies, templates and models
#                        (see tests/conformance/README.md)

CC      ?= gcc
BUILD   ?= build
BIN     ?= ruvllm
MODEL   ?= smollm2
OPT     ?= -O2 -g
PIC     ?= -fPIC
THREADS ?= -pthread
VERSION := $(shell awk '/define RV_VERSION_(MAJOR|MINOR|PATCH) / {v = v sep $$3; sep = "."} \
  END {print v}' include/ruvllm.h)
SONAME  := libruvllm.so.0
STORE_SONAME := libruvllm-store.so.0
MACHINE := $(shell $(CC) -dumpmachine 2>/dev/null | cut -d- -f1)
JOBS    := $(shell nproc 2>/dev/null || echo 1)

# _GNU_SOURCE: base/ asks the system for affinity masks and the like; other rooms make no POSIX
# calls (tools/check_source).
CPPFLAGS += -Iinclude -Isrc -D_GNU_SOURCE
PG_SRC := $(addprefix src/store/,postgres.c postgres_link.c pq.c)
$(PG_SRC:%.c=$(BUILD)/%.o): CPPFLAGS += -I$(dir $(PG_HEADER))
CFLAGS   += -std=c11 $(OPT) $(PIC) -fvisibility=hidden -ffp-contract=off $(THREADS) \
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion $(SAN)
LDFLAGS  += $(THREADS) $(SAN)
LIBS     := -lm
HUB_LIBS := -lz -lcrypto
# PostgreSQL as a store where libpq's header is there, unless POSTGRES=no; its library is loaded
# when a database is opened.
PG_HEADER := $(firstword $(wildcard /usr/include/postgresql/libpq-fe.h /usr/include/libpq-fe.h))
POSTGRES ?= $(if $(PG_HEADER),yes,no)
STORE_LIBS := -lsqlite3
SERVER_LIBS := -levent_core -levent_pthreads -levent_openssl -lssl -lcrypto
CLI_LIBS := -ledit
LIBRARIES := $(addprefix $(BUILD)/libruvllm,.a .so -store.a -store.so)
HEADERS := $(sort $(wildcard include/*.h))

# --- sources: the rooms, lowest floor first ---
CORE_ROOMS  := base text formats kernels backend/cpu backend/cuda backend/split kv lora model \
  tokenizer template decode grammar calls learn/journal learn/instant learn/recognise \
  learn/consolidate learn/state learn/learner scheduler api
SHELL_ROOMS := hub store server cli
CORE_SRC    := $(foreach room,$(CORE_ROOMS),$(sort $(wildcard src/$(room)/*.c)))
SHELL_SRC   := $(filter-out $(if $(filter yes,$(POSTGRES)),src/store/no_postgres.c,$(PG_SRC)), \
  $(foreach room,$(SHELL_ROOMS),$(sort $(wildcard src/$(room)/*.c))))
# Tests by their names: test_* are fast, slow_* take more than some three seconds of CPU time.
FAST_SRC    := $(sort $(wildcard tests/*/test_*.c))
SLOW_SRC    := $(sort $(wildcard tests/*/slow_*.c))
FAST_SCRIPT := $(sort $(wildcard tests/*/test_*.sh tests/*/test_*.py))
SLOW_SCRIPT := $(sort $(wildcard tests/*/slow_*.sh tests/*/slow_*.py))
FUZZ_SRC    := $(sort $(wildcard tests/fuzz/fuzz_*.c))
CORE_OBJ    := $(CORE_SRC:%.c=$(BUILD)/%.o)
SHELL_OBJ   := $(SHELL_SRC:%.c=$(BUILD)/%.o)
FAST_BIN    := $(FAST_SRC:%.c=$(BUILD)/%)
SLOW_BIN    := $(SLOW_SRC:%.c=$(BUILD)/%)
TEST_BIN    := $(FAST_BIN) $(SLOW_BIN)
EXAMPLE_BIN := $(patsubst %.c,$(BUILD)/%,$(sort $(wildcard examples/*.c)))

THREAD_TESTS := $(addprefix tests/,base/test_pool base/test_thread model/test_golden api/test_api \
  api/test_engine api/test_lifetime api/test_open_beside decode/test_cancel \
  api/test_learner_threads api/test_learner_crowd api/test_wait scheduler/test_service \
  scheduler/test_lives scheduler/test_models scheduler/test_beside scheduler/test_saving \
  api/test_registry)

# --- one row of compiler flags per ISA; a file for another CPU family compiles to nothing ---
# Kernels have line numbers and no variables in their debug information: a third of their compile
# time for something no profile needs.
$(BUILD)/src/kernels/%.o: CFLAGS += -g1
AVX2   := -mavx2 -mfma -mf16c
AVX512 := -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni -mfma -mf16c
ifeq ($(MACHINE),x86_64)
$(BUILD)/src/kernels/avx2%.o: CFLAGS += $(AVX2)
$(BUILD)/src/kernels/avxvnni%.o: CFLAGS += $(AVX2) -mavxvnni
$(BUILD)/src/kernels/avx512%.o: CFLAGS += $(AVX512)
$(BUILD)/src/kernels/amx%.o: CFLAGS += $(AVX512) -mamx-tile -mamx-int8 -mamx-bf16
$(BUILD)/src/kernels/amx_train.o: CFLAGS += -mavx512bf16
$(BUILD)/src/kernels/peak_avx2.o: CFLAGS += -mavx2 -mfma
$(BUILD)/src/kernels/peak_avxvnni.o: CFLAGS += -mavx2 -mavxvnni
$(BUILD)/src/kernels/peak_avx512.o: CFLAGS += $(AVX512) -mavx512bf16
$(BUILD)/src/kernels/peak_amx.o: CFLAGS += -mamx-tile -mamx-int8 -mamx-bf16
else ifeq ($(MACHINE),aarch64)
$(BUILD)/src/kernels/dotprod%.o: CFLAGS += -march=armv8.2-a+dotprod
$(BUILD)/src/kernels/peak_dotprod.o: CFLAGS += -march=armv8.2-a+dotprod
$(BUILD)/src/kernels/peak_i8mm.o: CFLAGS += -march=armv8.2-a+i8mm
$(BUILD)/src/kernels/peak_bf16.o: CFLAGS += -march=armv8.2-a+bf16
endif

.PHONY: all run chat ready-to-run test test-slow test-all clients fast-programs slow-programs \
  tsan lives fuzz fuzz-programs cross sanitize-cuda wasm-check bench check format examples install \
  uninstall conformance conformance-programs deps model models clean deb release
all: $(BIN) $(LIBRARIES)

# A first build installs the packages it lacks; make then reads this file anew, for with a compiler
# it knows the machine. Without them, or without the right to install, what is missing is named.
ifneq ($(filter all install deb release,$(or $(MAKECMDGOALS),all)),)
-include $(BUILD)/packages
$(BUILD)/packages:
	@mkdir -p $(@D)
	@tools/install_deps run && touch $@
endif

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	@echo "  CC  $<"
	@$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c $< -o $@

# --- CUDA=1: the kernels for GPUs, compiled and embedded in the library. nvcc is the machine's own,
# or comes from PyPI (tools/get_nvcc). Devices of compute capability 9.0 and 8.x get code of their
# own, newer ones what the driver makes of PTX when it first loads it, which takes a minute.
# A tree remembers what it was last told: make install after make CUDA=1 installs the kernels.
ifeq ($(origin CUDA),undefined)
CUDA := $(shell cat $(BUILD)/cuda 2>/dev/null)
endif
ifneq ($(filter-out 0,$(CUDA)),)
CUDA_IMAGE := $(BUILD)/src/backend/cuda/kernels.fatbin
CUDA_SRC   := $(wildcard src/backend/cuda/*.cu src/backend/cuda/*.cuh) \
  $(addprefix src/backend/,draw.h cuda/args.h cuda/train_args.h cuda/weights.h)
CUDA_ARCH  ?= -gencode=arch=compute_90a,code=sm_90a \
  '-gencode=arch=compute_80,code=[sm_80,compute_80]'
$(CUDA_IMAGE): $(CUDA_SRC) tools/get_nvcc
	@mkdir -p $(@D)
	@echo "  NVCC $<"
	@$$(tools/get_nvcc) -std=c++17 -O3 -fmad=false -Isrc $(CUDA_ARCH) -fatbin $< -o $@
$(BUILD)/src/backend/cuda/image.o: $(CUDA_IMAGE)
$(BUILD)/src/backend/cuda/image.o: CPPFLAGS += -DRVI_CUDA_IMAGE='"$(CUDA_IMAGE)"' \
  -DRVI_CUDA_VERSION=$(shell $$(tools/get_nvcc) --version | \
    sed -n 's/.*release \([0-9]*\)\.\([0-9]*\).*/\1000/p')
endif
$(BUILD)/src/backend/cuda/image.o: $(BUILD)/cuda
$(BUILD)/cuda: always
	@mkdir -p $(@D)
	@echo "$(filter-out 0,$(CUDA))" | cmp -s - $@ || echo "$(filter-out 0,$(CUDA))" >$@

# The page that the server shows is taken in by the assembler, which names no dependencies.
$(BUILD)/src/server/page.o: $(wildcard src/server/page/*)

# What the program was built from, for `ruvllm bench` and bench/eval; compiled again when that
# changes.
COMMIT := $(shell git describe --always --dirty 2>/dev/null || echo unknown)
BUILD_NUMBER := $(shell git rev-list --count HEAD 2>/dev/null || echo 0)
$(BUILD)/src/cli/build.o: CPPFLAGS += -DRVI_COMMIT='"$(COMMIT)"' -DRVI_BUILD_NUMBER=$(BUILD_NUMBER)
$(BUILD)/src/cli/build.o: $(BUILD)/commit
$(BUILD)/commit: always
	@mkdir -p $(@D)
	@echo "$(COMMIT) $(BUILD_NUMBER)" | cmp -s - $@ || echo "$(COMMIT) $(BUILD_NUMBER)" >$@
.PHONY: always

$(BUILD)/libruvllm.a: $(CORE_OBJ)
	@rm -f $@ && ar rcs $@ $^

$(BUILD)/libruvllm.so: $(CORE_OBJ) packaging/ruvllm.map
	@$(CC) -shared -Wl,-soname,$(SONAME) -Wl,--version-script=packaging/ruvllm.map $(LDFLAGS) \
	  $(CORE_OBJ) $(LIBS) -o $@

# The store as a library of its own: programs that keep what was learned elsewhere need no SQLite.
# The shared one has its own copy of what it uses of base.
STORE_OBJ := $(filter $(BUILD)/src/store/%,$(SHELL_OBJ))
$(BUILD)/libruvllm-store.a: $(STORE_OBJ)
	@rm -f $@ && ar rcs $@ $^

$(BUILD)/libruvllm-store.so: $(STORE_OBJ) $(BUILD)/libruvllm.a packaging/ruvllm-store.map
	@$(CC) -shared -Wl,-soname,$(STORE_SONAME) \
	  -Wl,--version-script=packaging/ruvllm-store.map $(LDFLAGS) $(STORE_OBJ) \
	  $(BUILD)/libruvllm.a $(STORE_LIBS) $(LIBS) -o $@

$(BIN): $(SHELL_OBJ) $(BUILD)/libruvllm.a
	@echo "  LD  $@"
	@$(CC) $(LDFLAGS) $^ $(HUB_LIBS) $(STORE_LIBS) $(SERVER_LIBS) $(CLI_LIBS) $(LIBS) -o $@

# Examples see what a user of the installed library sees: the public header and the archive.
examples: $(EXAMPLE_BIN)
$(EXAMPLE_BIN): $(BUILD)/%: %.c $(HEADERS) $(BUILD)/libruvllm.a
	@mkdir -p $(@D)
	@echo "  LD  $@"
	@$(CC) -Iinclude $(CFLAGS) $(LDFLAGS) $< $(BUILD)/libruvllm.a $(LIBS) -o $@

# --- tests: one program a file; *_alloc_* can make any allocation fail. Half of their compile time
# would be optimization and debug information; make OPT="-O1 -g" gives a program for a debugger.
TEST_CPPFLAGS := -Itests
WRAP := -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=aligned_alloc,--wrap=mmap
$(BUILD)/tests/%.o: CPPFLAGS += $(TEST_CPPFLAGS)
$(BUILD)/tests/%.o: OPT := -O1 -g0
ROOM_OBJ = $(filter-out $(BUILD)/src/cli/%,$(SHELL_OBJ))

define link_test
@mkdir -p $(@D)
@echo "  LD  $@"
@$(CC) $(LDFLAGS) $(1) $< $(ROOM_OBJ) $(BUILD)/libruvllm.a -lcmocka $(HUB_LIBS) $(STORE_LIBS) \
  $(SERVER_LIBS) $(LIBS) -o $@
endef

.SECONDEXPANSION:
$(TEST_BIN): $(BUILD)/%: $(BUILD)/%.o $$(ROOM_OBJ) $(BUILD)/libruvllm.a
	$(call link_test,$(if $(findstring _alloc_,$@),$(WRAP)))

# A CUDA driver that computes the kernels on the host, for tests.
FAKE_DRIVER := $(BUILD)/tests/cuda/fake_driver.so
$(FAKE_DRIVER): $(wildcard tests/cuda/*.cpp tests/cuda/*.h) $(wildcard src/backend/cuda/*.cu) \
  $(wildcard src/backend/cuda/*.cuh) \
  $(addprefix src/backend/,draw.h cuda/args.h cuda/train_args.h cuda/weights.h) src/formats/qtypes.c
	@mkdir -p $(@D)
	@echo "  CXX $@"
	@$(CC) -Isrc -O1 -fPIC -c src/formats/qtypes.c -o $(@D)/qtypes.o
	@$(CXX) -std=c++17 -Isrc -O2 -g1 -fPIC -shared -fvisibility=hidden -ffp-contract=off -Wall \
	  -Wno-unknown-pragmas -Wno-unused-function tests/cuda/*.cpp $(@D)/qtypes.o -o $@
$(BUILD)/tests/cuda/%.o: CPPFLAGS += -DFAKE_DRIVER='"$(FAKE_DRIVER)"'
CUDA_TESTS := slow_cuda slow_draw slow_gradients slow_learn slow_rows slow_shapes slow_split \
  slow_wide
$(addprefix $(BUILD)/tests/cuda/,$(CUDA_TESTS)): $(FAKE_DRIVER)
# The program itself, with an image that only this driver takes.
CUDA_BIN := $(BUILD)/tests/cuda/ruvllm
$(CUDA_BIN): $(SHELL_OBJ) $(BUILD)/libruvllm.a $(FAKE_DRIVER)
	@echo "  LD  $@"
	@$(CC) $(CPPFLAGS) $(CFLAGS) -DRVI_CUDA_IMAGE='"tests/cuda/fake.h"' -DRVI_CUDA_VERSION=12000 \
	  -c src/backend/cuda/image.c -o $(@D)/image.o
	@$(CC) $(LDFLAGS) $(SHELL_OBJ) $(@D)/image.o $(BUILD)/libruvllm.a $(HUB_LIBS) $(STORE_LIBS) \
	  $(SERVER_LIBS) $(CLI_LIBS) $(LIBS) -o $@
	@ln -sf fake_driver.so $(@D)/libcuda.so.1

# The files that take longest to compile begin first, so that no core waits for them at the end.
LONG_SRC := avx512_panels avx2_panels avxvnni_panels amx_panels avx512_attention
fast-programs: $(LONG_SRC:%=$(BUILD)/src/kernels/%.o) all examples $(BUILD)/bench/eval $(FAST_BIN)
slow-programs: $(SLOW_BIN) $(CUDA_BIN)
# Fast programs that repeat more in test-slow (tests/harness/amount.h).
OFTEN_BIN = $(patsubst %.c,$(BUILD)/%,$(shell grep -lw OFTEN $(FAST_SRC)))
# Real models take longest and begin first.
SLOW_ORDER := $(filter $(BUILD)/tests/real/%,$(SLOW_BIN)) $(SLOW_SCRIPT) \
  $(filter-out $(BUILD)/tests/real/%,$(SLOW_BIN))

# What each run of run_tests counted is kept in a file; the last line of a run is their sum.
RESULTS  := build/results
ASAN     := BUILD=build/asan BIN=build/asan/ruvllm OPT="-O1 -g1" \
  SAN="-fsanitize=address,undefined -fno-sanitize-recover=all"
# Under ASan and UBSan, which cost a factor of ten and more, run all programs but the law, the ten
# thousand lives and those with real models: they repeat many times what other programs do once.
# Programs repeat less there where repeating shows nothing (tests/harness/amount.h). At -O1 the
# training kernels keep their sums in memory, and learners would take a third longer. The long
# programs begin first.
build/asan/src/kernels/%_train.o: override OPT := -O2
ASAN_LEFT_OUT := tests/model/slow_law tests/scheduler/slow_lives tests/real/%
ASAN_SRC := $(filter-out $(ASAN_LEFT_OUT:%=%.c),$(SLOW_SRC) $(FAST_SRC))
ASAN_BIN := $(ASAN_SRC:%.c=build/asan/%)
RUN := $(MAKE) --no-print-directory -j$(JOBS)
# The models that tests use; where one cannot be fetched, those tests are skipped.
FETCH_MODELS := for name in smollm2 minilm; do ./$(BIN) pull $$name >/dev/null || \
  echo "$$name cannot be fetched: the tests that need it are skipped"; done
# Some tests wait for what others do: servers, terminals, clocks of seconds.
TEST_JOBS := $(shell echo $$(($(JOBS) + 1)))

test: deps
	@mkdir -p $(RESULTS) && rm -f $(RESULTS)/*
	@$(RUN) fast-programs $(BENCH_BIN)
	@if $(RUN) check >$(RESULTS)/check.said 2>&1; then cases="1 0"; else cases="0 1"; fi; \
	  echo "make check 0 0 $$cases 0" >$(RESULTS)/check & \
	$(FETCH_MODELS); \
	RESULTS=$(RESULTS)/fast tools/run_tests -j $(TEST_JOBS) $(FAST_SCRIPT) $(FAST_BIN) || true; \
	wait; cat $(RESULTS)/check.said
	@tools/run_tests --total $(RESULTS)/check $(RESULTS)/fast

# What test-all has and test has not.
test-slow: deps
	@tools/install_deps browser || echo "there is no Chromium: the page is not tested in a browser"
	@mkdir -p $(RESULTS) && rm -f $(RESULTS)/slow* $(RESULTS)/asan*
	@$(RUN) fast-programs slow-programs
	@$(FETCH_MODELS)
	@RESULTS=$(RESULTS)/slow tools/run_tests -j $(JOBS) $(SLOW_ORDER) || true
	@TESTS_ALL=1 RESULTS=$(RESULTS)/slow tools/run_tests -j $(JOBS) --label all $(OFTEN_BIN) || true
	@echo "--- under ASan and UBSan"
	@$(RUN) $(ASAN) $(ASAN_BIN)
	@RESULTS=$(RESULTS)/asan tools/run_tests -j $(JOBS) --label asan $(ASAN_BIN) || true
	@tools/run_tests --total $(RESULTS)/slow $(RESULTS)/asan

test-all:
	@$(MAKE) --no-print-directory test || true
	@$(MAKE) --no-print-directory test-slow || true
	@tools/run_tests --total $(addprefix $(RESULTS)/,check fast slow asan)

# Client libraries from PyPI and npm, unmodified; those that cannot be had are skipped and counted.
CLIENTS := $(sort $(wildcard tests/server/client_*.py)) \
  $(addprefix tests/server/slow_,openai.py responses.py anthropic.py ollama.py)
clients: deps
	@$(RUN) all
	@$(MAKE) --no-print-directory models
	@tools/run_tests -j 1 $(CLIENTS)

# A test forks beside a thread that was detached and may not have ended yet, which TSan refuses by
# default.
tsan: deps
	@$(RUN) $(THREAD_TESTS:%=build/tsan/%) BUILD=build/tsan BIN=build/tsan/ruvllm \
	  SAN=-fsanitize=thread OPT="-O1 -g"
	@TSAN_OPTIONS=die_after_fork=0 tools/run_tests --label tsan $(THREAD_TESTS:%=build/tsan/%)

# Ten thousand random lives of requests, under TSan and under ASan with UBSan.
lives: deps
	@$(RUN) build/tsan/tests/scheduler/slow_lives BUILD=build/tsan BIN=build/tsan/ruvllm \
	  SAN=-fsanitize=thread OPT="-O1 -g"
	@$(RUN) $(ASAN) build/asan/tests/scheduler/slow_lives
	@TEST_CPU_SECONDS=20000 tools/run_tests -j 1 --label lives build/tsan/tests/scheduler/slow_lives \
	  build/asan/tests/scheduler/slow_lives

# --- fuzzers ---
FUZZ_SECONDS ?= 300
FUZZ_BIN := $(FUZZ_SRC:%.c=$(BUILD)/%)
$(FUZZ_BIN): $(BUILD)/%: $(BUILD)/%.o $(BUILD)/libruvllm.a
	@$(CC) $(LDFLAGS) -fsanitize=fuzzer $^ $(LIBS) -o $@
$(BUILD)/tests/fuzz/fuzz_http: $(BUILD)/src/server/http.o
fuzz-programs: $(FUZZ_BIN)
fuzz:
	@tools/install_deps clang
	@$(RUN) fuzz-programs CC=clang BUILD=build/fuzz OPT="-O1 -g" \
	  SAN="-fsanitize=address,undefined,fuzzer-no-link -fno-sanitize-recover=all"
	@tools/run_fuzzers $(FUZZ_SECONDS) $(FUZZ_SRC:%.c=build/fuzz/%)

# --- the other CPU family ---
CROSS_CC ?= aarch64-linux-gnu-gcc
CROSS_CXX ?= aarch64-linux-gnu-g++
# By the names of the libraries themselves: the package with the short names cannot be installed for
# two CPU families at once, and this machine's own needs it.
CROSS_EVENT := -l:libevent_core-2.1.so.7 -l:libevent_pthreads-2.1.so.7 \
  -l:libevent_openssl-2.1.so.7 -lssl -lcrypto
# What another CPU family computes differently comes first: kernels, backend, models. Under qemu,
# which is up to a hundred times slower than this machine, programs repeat less
# (tests/harness/amount.h), and one that takes a quarter of an hour all the same is ended.
CROSS_SRC   := $(filter-out tests/real/%,$(FAST_SRC))
CROSS_FIRST := $(filter tests/kernels/% tests/backend/% tests/model/%,$(CROSS_SRC))
CROSS_ORDER := $(CROSS_FIRST) $(filter-out $(CROSS_FIRST),$(CROSS_SRC))
CROSS_BIN   := $(CROSS_ORDER:%.c=build/aarch64/%)
CROSS_RUN   := RESULTS=build/results-aarch64 RUNNER=qemu-aarch64 TEST_CPU_SECONDS=900 \
  TEST_IDLE_SECONDS=120
cross:
	@tools/install_deps cross
	@$(RUN) all $(CROSS_BIN) CC=$(CROSS_CC) CXX=$(CROSS_CXX) BUILD=build/aarch64 \
	  BIN=build/aarch64/ruvllm SERVER_LIBS="$(CROSS_EVENT)" \
	  TEST_CPPFLAGS="-Itests -DTESTS_EMULATED"
	@rm -f build/results-aarch64*
	@$(CROSS_RUN) tools/run_tests -j $(JOBS) --label aarch64 $(CROSS_BIN) || true
	@echo "not run under qemu: slow_*, tests/real, scripts (they run ./ruvllm)"
	@tools/run_tests --total build/results-aarch64

# --- no threads, no mapped files, 32-bit addresses: what a browser has. The stack is as large as a
# native one.
WASM := build/wasm/tests/wasm/wasm_golden
$(BUILD)/tests/wasm/wasm_golden: $(BUILD)/tests/wasm/wasm_golden.o $(CORE_OBJ)
	@echo "  LD  $@"
	@$(CC) $(LDFLAGS) $^ $(LIBS) -o $@
wasm-check:
	@tools/install_deps build
	@tools/install_deps wasm
	@$(RUN) build/tests/wasm/wasm_golden BUILD=build
	@$(RUN) $(WASM) BUILD=build/wasm CC="clang --target=wasm32-wasi" OPT=-O2 PIC= \
	  THREADS=-DRVI_NO_THREADS LDFLAGS="-Wl,-z,stack-size=8388608 -Wl,--stack-first -Wl,--strip-all"
	@tests/wasm/check.py build/tests/wasm/wasm_golden $(WASM)

BENCH_BIN := $(addprefix $(BUILD)/bench/,kernels train train_step adapters sealed registry kv \
  learn_latency learn_beside learn_turns structured constrained tools bookkeeping prefixes \
  sampling)
$(BENCH_BIN): $(BUILD)/%: $(BUILD)/%.o $(BUILD)/libruvllm.a
	@$(CC) $(LDFLAGS) $^ $(LIBS) -o $@
$(BUILD)/bench/learn_latency: $(STORE_OBJ)
$(BUILD)/bench/learn_latency: LIBS += $(STORE_LIBS)

# bench/eval has the frame of the program (options, help, models by name) and commands of its own.
EVAL_OBJ := $(patsubst bench/eval/%.c,$(BUILD)/eval/%.o,$(sort $(wildcard bench/eval/*.c)))
EVAL_FRAME := $(patsubst %,$(BUILD)/src/cli/%.o,main options common build generation paths screen) \
  $(filter $(BUILD)/src/hub/% $(BUILD)/src/store/%,$(SHELL_OBJ))
$(EVAL_OBJ): $(BUILD)/eval/%.o: bench/eval/%.c
	@mkdir -p $(@D)
	@echo "  CC  $<"
	@$(CC) -Ibench $(CPPFLAGS) $(CFLAGS) -MMD -MP -c $< -o $@
$(BUILD)/bench/eval: $(EVAL_OBJ) $(EVAL_FRAME) $(BUILD)/libruvllm.a
	@mkdir -p $(@D)
	@echo "  LD  $@"
	@$(CC) $(LDFLAGS) $^ $(HUB_LIBS) $(STORE_LIBS) $(LIBS) -o $@

# --- the kernels for GPUs under the tool that comes with the CUDA toolkit ---
sanitize-cuda: deps
	@$(RUN) CUDA=1 $(addprefix $(BUILD)/tests/cuda/,slow_rows slow_wide slow_draw slow_cuda \
	  slow_gradients)
	@tools/sanitize_cuda $(BUILD)

bench: deps
	@$(RUN) $(BENCH_BIN)
	@$(BUILD)/bench/kernels
	@$(BUILD)/bench/train

# Only files that changed since they were last right are formatted again to compare.
C_FILES := $(sort $(wildcard include/*.h examples/*.c $(foreach f,src tests bench,$(f)/*.[ch] \
  $(f)/*/*.[ch] $(f)/*/*/*.[ch])))
# Generated tables are as their scripts write them.
FORMATTED := $(filter-out src/%_tables.c,$(C_FILES))
check: all $(BUILD)/bench/eval $(BENCH_BIN) $(BUILD)/formatted
	@tools/check_source
	@tools/check_symbols $(BUILD)
	@tools/test_table --check
$(BUILD)/formatted: $(FORMATTED) .clang-format src/kernels/.clang-format
	@clang-format --dry-run -Werror $(filter %.c %.h,$?)
	@touch $@
format:
	@clang-format -i $(FORMATTED)
	@tools/wrap_docs $(wildcard *.md docs/*.md bench/*.md tests/*.md tests/*/README.md)

# --- installing; the manual page and the completions are made from the program's own help ---
PREFIX     ?= /usr/local
LIBDIR     ?= $(PREFIX)/lib
BINDIR     ?= $(PREFIX)/bin
INCLUDEDIR ?= $(PREFIX)/include
DATADIR    ?= $(PREFIX)/share
REAL_SO    := libruvllm.so.$(VERSION)
REAL_STORE_SO := libruvllm-store.so.$(VERSION)
MANPAGE    := $(DATADIR)/man/man1/ruvllm.1
BASH_FILE  := $(DATADIR)/bash-completion/completions/ruvllm
ZSH_FILE   := $(DATADIR)/zsh/site-functions/_ruvllm
FISH_FILE  := $(DATADIR)/fish/vendor_completions.d/ruvllm.fish
DOC_FILES  := $(DATADIR)/doc/ruvllm/LICENSE-MIT $(DATADIR)/doc/ruvllm/LICENSE-APACHE
STRIP      ?= strip
INSTALLED  := $(BINDIR)/ruvllm $(HEADERS:include/%=$(INCLUDEDIR)/%) \
  $(addprefix $(LIBDIR)/,libruvllm.a $(REAL_SO) $(SONAME) libruvllm.so pkgconfig/ruvllm.pc \
    libruvllm-store.a $(REAL_STORE_SO) $(STORE_SONAME) libruvllm-store.so \
    pkgconfig/ruvllm-store.pc) \
  $(MANPAGE) $(BASH_FILE) $(ZSH_FILE) $(FISH_FILE) $(DOC_FILES)
FROM_HELP  := $(addprefix $(BUILD)/help/,ruvllm.1 ruvllm.bash _ruvllm ruvllm.fish)

$(FROM_HELP): $(BIN) tools/make_man
	@mkdir -p $(@D)
	@tools/make_man $(@F) $(RUNNER) $(abspath $(BIN)) > $@.part && mv $@.part $@

install: all $(FROM_HELP)
	@install -d $(patsubst %,"$(DESTDIR)%",$(sort $(dir $(INSTALLED))))
	install -m 755 $(BIN) "$(DESTDIR)$(BINDIR)/ruvllm"
	install -m 644 $(HEADERS) "$(DESTDIR)$(INCLUDEDIR)"
	install -m 644 $(filter %.a,$(LIBRARIES)) "$(DESTDIR)$(LIBDIR)"
	install -m 755 $(BUILD)/libruvllm.so "$(DESTDIR)$(LIBDIR)/$(REAL_SO)"
	install -m 755 $(BUILD)/libruvllm-store.so "$(DESTDIR)$(LIBDIR)/$(REAL_STORE_SO)"
	$(STRIP) --strip-unneeded "$(DESTDIR)$(BINDIR)/ruvllm" "$(DESTDIR)$(LIBDIR)/$(REAL_SO)" \
	  "$(DESTDIR)$(LIBDIR)/$(REAL_STORE_SO)"
	$(STRIP) --strip-debug "$(DESTDIR)$(LIBDIR)/libruvllm.a" \
	  "$(DESTDIR)$(LIBDIR)/libruvllm-store.a"
	ln -sf $(REAL_SO) "$(DESTDIR)$(LIBDIR)/$(SONAME)"
	ln -sf $(SONAME) "$(DESTDIR)$(LIBDIR)/libruvllm.so"
	ln -sf $(REAL_STORE_SO) "$(DESTDIR)$(LIBDIR)/$(STORE_SONAME)"
	ln -sf $(STORE_SONAME) "$(DESTDIR)$(LIBDIR)/libruvllm-store.so"
	for name in ruvllm ruvllm-store; do \
	  sed -e 's|@PREFIX@|$(PREFIX)|; s|@LIBDIR@|$(LIBDIR)|; s|@INCLUDEDIR@|$(INCLUDEDIR)|' \
	    -e 's|@VERSION@|$(VERSION)|' packaging/$$name.pc.in \
	    > "$(DESTDIR)$(LIBDIR)/pkgconfig/$$name.pc"; \
	  chmod 644 "$(DESTDIR)$(LIBDIR)/pkgconfig/$$name.pc"; \
	done
	install -m 644 $(BUILD)/help/ruvllm.1 "$(DESTDIR)$(MANPAGE)"
	install -m 644 $(BUILD)/help/ruvllm.bash "$(DESTDIR)$(BASH_FILE)"
	install -m 644 $(BUILD)/help/_ruvllm "$(DESTDIR)$(ZSH_FILE)"
	install -m 644 $(BUILD)/help/ruvllm.fish "$(DESTDIR)$(FISH_FILE)"
	install -m 644 LICENSE-MIT LICENSE-APACHE "$(DESTDIR)$(DATADIR)/doc/ruvllm"
	@if [ -z "$(DESTDIR)" ] && [ "$$(id -u)" = 0 ]; then ldconfig; fi

uninstall:
	rm -f $(patsubst %,"$(DESTDIR)%",$(INSTALLED))

# --- packages ---
deb: all $(FROM_HELP)
	@tools/install_deps deb
	@packaging/make_deb $(VERSION) $(BUILD)/deb

# Everything but the C library is linked into the program of an archive.
STATIC = $(patsubst -l%,-l:lib%.a,$(1))
RELEASE_BIN := $(BUILD)/release/ruvllm
$(RELEASE_BIN): $(SHELL_OBJ) $(BUILD)/libruvllm.a
	@mkdir -p $(@D)
	@echo "  LD  $@"
	@$(CC) $(LDFLAGS) $^ $(call STATIC,-lsqlite3 $(SERVER_LIBS) $(HUB_LIBS) $(CLI_LIBS) -ltinfo \
	  -lbsd -lmd) -lm -o $@
release: $(RELEASE_BIN) $(FROM_HELP)
	@packaging/make_release $(VERSION) $(RELEASE_BIN) $(BUILD)/release

# --- the rest of the world ---
deps:
	@tools/install_deps build

# A name from the catalogue is fetched once; files and directories are taken as they are.
model: $(BIN)
	@if [ ! -e "$(MODEL)" ]; then ./$(BIN) pull "$(MODEL)" >/dev/null; fi

models: $(BIN)
	@$(FETCH_MODELS)

ready-to-run:
	@tools/install_deps run
	@$(RUN) $(BIN) >&2
	@$(MAKE) --no-print-directory model
run: ready-to-run
	@tools/serve_and_chat ./$(BIN) "$(MODEL)" $(PORT)
chat: ready-to-run
	@./$(BIN) chat "$(MODEL)"

CONFORMANCE := $(patsubst %.c,$(BUILD)/%,$(wildcard tests/conformance/*.c))
$(CONFORMANCE): $(BUILD)/%: $(BUILD)/%.o $(BUILD)/libruvllm.a
	@$(CC) $(LDFLAGS) $^ $(LIBS) -o $@
conformance-programs: $(CONFORMANCE)
conformance: deps
	@test -n "$(DATA)" || { \
	  echo "make conformance DATA=folder (see tests/conformance/README.md)"; exit 2; }
	@$(RUN) all conformance-programs
	@$(MAKE) --no-print-directory model
	@tests/conformance/run "$(DATA)"

clean:
	rm -rf build ruvllm

-include $(wildcard $(addprefix $(BUILD)/,src/*/*.d src/*/*/*.d tests/*/*.d bench/*.d eval/*.d))
