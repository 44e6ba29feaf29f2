# make            this menu
# Variables: CC, CXX, CFLAGS, NVCC, CUDA_CODE, DATA=file (make run), PHASE (make bench-cuda), JOBS, ROUNDS and FIRST_ROUND (make soak), SECONDS and TARGETS (make fuzz)

CC ?= cc
CXX ?= c++
CFLAGS ?= -O2
JOBS ?= $(shell nproc 2> /dev/null || echo 2)
BUILD ?= build
LIBS = -lm -lpthread
INCLUDES = -I. -Iutil

.PHONY: menu run test check-header golden sanitize soak systems faults bench oracle clean fuzz mpi cuda nccl test-cuda bench-cuda cuda-model docs
.PHONY: programs test-programs thread-test-programs mpi-test-programs standin-programs cuda-tests FORCE

menu:
	@echo 'make run           trains a small GPT on Shakespeare (DATA=file: on any text), then prints a sample'
	@echo 'make programs      build/train, build/generate and the others, and the examples'
	@echo 'make test          installs what the tests need, builds and runs everything that needs no GPU'
	@echo 'make systems       rows of docs/systems.md: what systems of the literature do, shown and measured (ROWS="0.1 1.7": some)'
	@echo 'make check-header  warnings, symbols, options and manual of the headers'
	@echo 'make golden        one hash from every compiler, flag, instruction set and processor at hand'
	@echo 'make sanitize      the tests under ASan and UBSan, thread tests under TSan'
	@echo 'make faults        seeded bugs, each must be caught'
	@echo 'make soak          sanitize, faults, and many random layouts: hours'
	@echo 'make bench         build/het_bench: speed of products and of whole steps'
	@echo 'make mpi           build/train_mpi: the same program for several processes, mpirun -n N build/train_mpi ...'
	@echo 'make cuda          build/train_cuda: the same program with a CUDA device, build/train_cuda --devices cuda:0 ...'
	@echo 'make nccl          build/train_nccl: CUDA, and cards that exchange by NCCL, in one process or (with MPI, where it is found) in many'
	@echo 'make test-cuda     the CUDA device against the CPU device, on a GPU'
	@echo 'make bench-cuda    PHASE=speed|right|anchor|tune|rows: what wants a GPU, benchmarks beside PyTorch included; results in build/on_gpu'
	@echo 'make cuda-model    bytes, launches and conversions of a step, counted without a GPU, and the speed they predict'
	@echo 'make oracle        regenerates tests/oracle/data with PyTorch'
	@echo 'make fuzz          fuzz targets, each SECONDS=60 long with and without assertions; TARGETS=... names some of them'
	@echo 'make docs          writes the option lists of docs/ again, from what the programs print'
	@echo 'make clean         removes build/'

# ---- programs ---------------------------------------------------------------------------------------------------------
# build/NAME is NAME.c of programs/ or examples/ with CFLAGS alone, so that an unknown compiler's new warnings stop nobody. Every one of them builds
# by itself, as its first lines say; here they share one object of the headers' implementations. custom_allocator wants other ones.

LINKED = -DHETRAIN_IMPLEMENTATION_DONE=1 -DHETRAIN_TEXT_IMPLEMENTATION_DONE=1 -DHETRAIN_PLAN_IMPLEMENTATION_DONE=1 -DHETRAIN_SEARCH_IMPLEMENTATION_DONE=1 -DHETRAIN_TOKENIZER_IMPLEMENTATION_DONE=1 -DHETRAIN_FILES_IMPLEMENTATION_DONE=1
PROGRAMS = $(basename $(notdir $(wildcard programs/*.c examples/*.c examples/*.cpp)))
vpath %.c programs examples
vpath %.cpp examples
HEADERS = $(wildcard hetrain*.h util/* programs/*.h examples/*.h)

programs: $(PROGRAMS:%=build/%) build/het_bench

# Two halves of it compile at the same time.
PARTS = engine companions

build/implementation.o: $(PARTS:%=build/%.o)
	$(CC) -r -nostdlib $^ -o $@

$(PARTS:%=build/%.o): build/%.o: tests/implementation.c $(HEADERS) | build
	$(CC) $(CFLAGS) $(INCLUDES) -D$*_alone -c $< -o $@

build/%: %.c $(HEADERS) build/implementation.o
	$(CC) $(CFLAGS) $(LINKED) $(INCLUDES) $< build/implementation.o -o $@ $(LIBS)

build/%: %.cpp $(HEADERS) build/implementation.o
	$(CXX) -std=c++11 $(CFLAGS) $(LINKED) $(INCLUDES) $< build/implementation.o -o $@ $(LIBS)

build/custom_allocator: examples/custom_allocator.c $(HEADERS) | build
	$(CC) $(CFLAGS) $(INCLUDES) $< -o $@ $(LIBS)

build/het_bench: tests/bench/het_bench.c $(wildcard tests/bench/*.h) $(HEADERS) build/implementation.o
	$(CC) $(CFLAGS) $(LINKED) $(INCLUDES) $< build/implementation.o -o $@ $(LIBS)

build:
	@mkdir -p $@

# ---- several processes ------------------------------------------------------------------------------------------------
# The MPI compiler only says where MPI is, so that its headers come as a system's.

MPICC ?= mpicc
MPI_SHOW = $(shell $(MPICC) -show 2> /dev/null)
MPI_INCLUDES = $(patsubst -I%,-isystem %,$(filter -I%,$(MPI_SHOW)))
MPI_LIBS = $(filter -L% -l% -Wl% -pthread,$(MPI_SHOW))

mpi: build/train_mpi

build/train_mpi: programs/train.c build/hetrain_mpi.o build/implementation.o $(HEADERS)
	$(CC) $(CFLAGS) $(LINKED) -DHETRAIN_MPI=1 $(INCLUDES) programs/train.c build/hetrain_mpi.o build/implementation.o -o $@ $(MPI_LIBS) $(LIBS)

build/hetrain_mpi.o: util/hetrain_mpi.c hetrain.h | build
	@[ -n "$(MPI_SHOW)" ] || { echo 'make mpi: $(MPICC) is missing (Debian: libopenmpi-dev; or MPICC=...)' >&2; exit 2; }
	$(CC) -std=c99 $(CFLAGS) $(C_WARNINGS) -Wc++-compat $(INCLUDES) $(MPI_INCLUDES) -c $< -o $@

# ---- CUDA -------------------------------------------------------------------------------------------------------------
# Machine code for compute capability 8.0 and 9.0 (9.0a: with products of four warps), and 9.0's PTX, which drivers of newer cards translate. A kernel that
# spills registers or uses local memory is an error.

NVCC ?= nvcc
PHASE ?= speed
CUDA_SUITES = $(basename $(notdir $(wildcard tests/cuda/test_*.cpp)))
NVCC_FOUND = $(shell command -v $(NVCC) 2> /dev/null)
CUDA_CODE ?= -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90a,code=sm_90a -gencode arch=compute_90,code=compute_90
NVCC_FLAGS = -std=c++17 -O3 $(INCLUDES) $(BLAS_INCLUDES) $(CUDA_CODE) -Xptxas -warn-spills,-warn-lmem-usage -Werror all-warnings -Xcompiler -Wall,-Wextra,-Wshadow,-Wconversion,-Werror
CUDA_LINK = $(NVCC) $(CUDA_CODE) $^ -o $@ $(BLAS_LIBS) -lm -lpthread
HAS_NVCC = @[ -n "$(NVCC_FOUND)" ] || { echo 'make cuda: $(NVCC) is missing (the CUDA toolkit, version 12.5 or newer; or NVCC=...)' >&2; exit 2; }

cuda: build/train_cuda

build/hetrain_cuda.o: hetrain_cuda.cu hetrain.h | build
	$(HAS_NVCC)
	$(NVCC) $(NVCC_FLAGS) -c $< -o $@

build/train_cuda.o: programs/train.c $(HEADERS) hetrain_cuda.cu | build
	$(CC) $(CFLAGS) $(LINKED) -DHETRAIN_CUDA=1 $(INCLUDES) -c $< -o $@

build/bench_cuda.o: tests/cuda/bench_cuda.c $(HEADERS) hetrain_cuda.cu | build
	$(CC) $(CFLAGS) $(LINKED) $(INCLUDES) -c $< -o $@

build/train_cuda build/bench_cuda: build/%: build/%.o build/hetrain_cuda.o build/implementation.o
	$(HAS_NVCC)
	$(CUDA_LINK)

# cuBLASLt and NCCL are looked for beside CUDA, in the system, and where neither has them in Python's wheels, whose libraries have no name without a
# version; NCCL first in NCCL_HOME. MPI is taken in where there is one.
# $(call root,HEADER,FIRST,WHEELS): the folder of include/HEADER. $(call linked,NAME,ROOT): how to link lib/libNAME.
SYSTEM = /usr /usr/local
WHEELS = $(shell python3 -c 'import nvidia; print(*nvidia.__path__)' 2> /dev/null)
CUDA_ROOT = $(patsubst %/bin/nvcc,%,$(realpath $(NVCC_FOUND)))
root = $(patsubst %/include/$(1),%,$(firstword $(or $(wildcard $(addsuffix /include/$(1),$(2) $(CUDA_ROOT) $(SYSTEM))),\
    $(wildcard $(foreach wheel,$(WHEELS),$(3:%=$(wheel)/%/include/$(1)))))))
folders = $(sort $(realpath $(wildcard $(addsuffix /lib64,$(1)) $(addsuffix /lib,$(1)))))
linked = $(foreach folder,$(call folders,$(2)),-L$(folder) -Xlinker -rpath=$(folder)) $(call named,$(1),$(addsuffix /lib$(1).so,$(call folders,$(2))))
named = $(or $(if $(wildcard $(2)),-l$(1)),$(patsubst %,-Xlinker -l:%,$(notdir $(firstword $(wildcard $(addsuffix .*,$(2)))))),-l$(1))
BLAS_ROOT = $(call root,cublasLt.h,,cu13 cublas)
BLAS_INCLUDES = $(patsubst %,-isystem %/include,$(filter-out $(CUDA_ROOT) $(SYSTEM),$(BLAS_ROOT)))
BLAS_LIBS = $(call linked,cublasLt,$(BLAS_ROOT))
NCCL_ROOT = $(call root,nccl.h,$(NCCL_HOME),nccl)
NCCL_INCLUDES = $(patsubst %,-isystem %/include,$(filter-out $(SYSTEM),$(sort $(CUDA_ROOT) $(NCCL_ROOT))))
NCCL_LIBS = $(call linked,nccl,$(NCCL_ROOT))
HAS_NCCL = @[ -n "$(NCCL_ROOT)" ] || { echo 'make nccl: nccl.h is missing (Debian, Ubuntu: libnccl-dev; or NCCL_HOME=...)' >&2; exit 2; }

nccl: build/train_nccl

build/hetrain_nccl.o: hetrain_nccl.c hetrain_cuda.cu hetrain.h | build
	$(HAS_NVCC)
	$(HAS_NCCL)
	$(CC) -std=c99 $(CFLAGS) $(C_WARNINGS) -Wc++-compat $(INCLUDES) $(NCCL_INCLUDES) -c $< -o $@

build/train_nccl.o: programs/train.c $(HEADERS) hetrain_cuda.cu hetrain_nccl.c | build
	$(CC) $(CFLAGS) $(LINKED) -DHETRAIN_CUDA=1 -DHETRAIN_NCCL=1 $(if $(MPI_SHOW),-DHETRAIN_MPI=1) $(INCLUDES) -c $< -o $@

build/train_nccl: build/train_nccl.o build/hetrain_cuda.o build/hetrain_nccl.o build/implementation.o $(if $(MPI_SHOW),build/hetrain_mpi.o)
	$(CXX) $^ -o $@ $(call linked,cudart,$(CUDA_ROOT)) $(BLAS_LIBS) $(NCCL_LIBS) $(MPI_LIBS) $(LIBS)

# The tests on a real card: programs with kernels, device and test in one; those of NCCL where it is found. Their cmocka is one header, so that they run
# where they were copied to.
CMOCKA_HEADER = tests/cuda/cmocka/cmocka.h
ON_CUDA = $(patsubst %,build/on_cuda/%,$(if $(NCCL_ROOT),$(CUDA_SUITES),$(filter-out test_nccl,$(CUDA_SUITES))))

$(ON_CUDA): build/on_cuda/%: tests/cuda/%.cpp $(CMOCKA_HEADER) tests/cuda/training.h hetrain_cuda.cu hetrain_nccl.c hetrain.h build/tests/cuda_support.o \
    build/tests/implementation.o
	$(HAS_NVCC)
	@mkdir -p build/on_cuda
	$(NVCC) -std=c++17 -O2 $(INCLUDES) -Itests/cuda/cmocka -Itests $(NCCL_INCLUDES) $(BLAS_INCLUDES) $(CUDA_CODE) -x cu -c $< -o $@.o
	$(NVCC) $(CUDA_CODE) $@.o build/tests/cuda_support.o build/tests/implementation.o -o $@ $(BLAS_LIBS) \
	    $(if $(findstring nccl,$@),$(NCCL_LIBS)) -lm -lpthread

cuda-tests: $(ON_CUDA)

test-cuda: cuda-tests
	@for suite in $(ON_CUDA); do $$suite || exit 1; done

bench-cuda:
	bash tests/cuda/on_gpu.sh $(PHASE) build/on_gpu

# What the ops of a step read, write, multiply and start, counted on the stand-in, and the step they would make on a card: a model, nothing measured.
cuda-model: $(BUILD)/standin/bench_cuda
	@python3 tests/cuda/model.py $<
	@[ -z "$(NVCC_FOUND)" ] || python3 tests/cuda/sass.py $(NVCC)

# ---- the main job -----------------------------------------------------------------------------------------------------

DATA ?= tests/data/shakespeare.txt

# It puts a run in the place of its own one alone, which the log tells by its tokenizer.
run:
	@$(MAKE) --no-print-directory -j$(JOBS) build/tokenize build/train build/generate
	build/tokenize --train 1024 --text '$(DATA)' --tokenizer build/words.json
	build/train --data '$(DATA)' --tokenizer build/words.json --model llama:layers=4,width=192,heads=6,context=128,vocab=1024 --out build/run \
	    $$(grep -qs '"tokenizer":"build/words.json"' build/run/log.jsonl && echo --overwrite)
	@echo
	build/generate --init build/run --temperature 0.5 --tokens 200

docs: $(PROGRAMS:%=build/%)
	@bash tests/tools/docs.sh build

# ---- tests ------------------------------------------------------------------------------------------------------------
# Everything here is compiled with the whole set of warnings as errors, into $(BUILD)/tests and $(BUILD)/checked.

WARNINGS = -Wall -Wextra -Wpedantic -Werror -Wconversion -Wsign-conversion -Wfloat-conversion -Wdouble-promotion -Wshadow -Wundef -Wcast-qual -Wvla -Wformat=2
C_WARNINGS = $(WARNINGS) -Wstrict-prototypes -Wmissing-prototypes
SANITIZER ?=
ROUNDS ?= 5000
RANK_ROUNDS ?= 1000
FIRST_ROUND ?= 0
TEST_FLAGS ?= -O2 -g1
TEST_CC = $(CC) -std=c99 $(TEST_FLAGS) $(SANITIZER) $(INCLUDES) -Itests

SUITES = $(basename $(notdir $(wildcard tests/test_*.c)))
SHELL_SUITES = $(wildcard tests/test_*.sh)
TEST_HEADERS = $(wildcard hetrain*.h util/*.h tests/*.h tests/oracle/*.h)
LINKED_SUITES = $(filter-out test_inside,$(SUITES))
CHECKED = $(PROGRAMS:%=$(BUILD)/checked/%) $(BUILD)/checked/het_bench

test:
	@bash tests/tools/install.sh
	@$(MAKE) --no-print-directory -k -j$(JOBS) test-programs || true
	@CC="$(CC)" CXX="$(CXX)" bash tests/tools/run_tests.sh $(BUILD) $(SUITES) $(CUDA_SUITES) $(SHELL_SUITES) tests/tools/golden.sh tests/tools/house.sh tests/tools/check_header.sh

test-programs: $(SUITES:%=$(BUILD)/tests/%) $(CUDA_SUITES:%=$(BUILD)/tests/%) $(BUILD)/standin/train_nccl $(BUILD)/standin/bench_cuda $(CHECKED) mpi-test-programs

# Where there is no MPI the shell suite says so.
mpi-test-programs: $(if $(MPI_SHOW),$(patsubst %,$(BUILD)/mpi/%,test_mpi test_mpi_pieces test_fake train_mpi))

MPI_TEST_SOURCES = tests/mpi/test_mpi.c util/hetrain_mpi.c

$(BUILD)/mpi/test_mpi $(BUILD)/mpi/test_mpi_pieces: $(MPI_TEST_SOURCES) tests/transport.h hetrain.h | $(BUILD)/mpi
	@echo "  compile $@"
	@for source in $(MPI_TEST_SOURCES); do \
	    $(TEST_CC) $(C_WARNINGS) -Wc++-compat $(MPI_INCLUDES) $(if $(findstring pieces,$@),-DHETRAIN_MPI_PIECE=1000) -c $$source -o $@-$$(basename $$source .c).o || exit 1; \
	done
	@$(TEST_CC) $@-test_mpi.o $@-hetrain_mpi.o -o $@ $(MPI_LIBS) $(LIBS)

$(BUILD)/mpi/train_mpi: programs/train.c util/hetrain_mpi.c $(HEADERS) $(BUILD)/tests/implementation.o | $(BUILD)/mpi
	@echo "  compile $@"
	@$(TEST_CC) $(C_WARNINGS) -Wc++-compat $(MPI_INCLUDES) -c util/hetrain_mpi.c -o $@-hetrain_mpi.o
	@$(TEST_CC) -O0 $(C_WARNINGS) $(LINKED) -DHETRAIN_MPI=1 programs/train.c $@-hetrain_mpi.o $(BUILD)/tests/implementation.o -o $@ $(MPI_LIBS) $(LIBS)

$(BUILD)/mpi/test_fake: tests/mpi/test_fake.c tests/mpi/fake/mpi.h util/hetrain_mpi.c hetrain.h | $(BUILD)/mpi
	@echo "  compile $@"
	@$(CC) -std=c99 -O1 -g $(or $(SANITIZER),-fsanitize=thread) $(C_WARNINGS) $(INCLUDES) -Itests/mpi/fake $< -o $@ $(LIBS)

# The CUDA device and its kernels without a GPU: the kernels' own source under an emulation, the runtime and cuBLASLt played by a stand-in. They run on
# this machine alone, and would spend up to a quarter of their time calling fmaf where the compiler does not know that the processor has it.
STANDIN = tests/cuda/standin
STANDIN_FILES = hetrain_cuda.cu hetrain_nccl.c $(wildcard tests/cuda/*.h $(STANDIN)/*)
STANDIN_NATIVE := $(shell echo | $(CXX) -march=native -E - > /dev/null 2>&1 && echo -march=native)
STANDIN_CXX = $(CXX) -std=c++17 $(TEST_FLAGS) $(STANDIN_NATIVE) -ffp-contract=off $(SANITIZER) $(INCLUDES) -Itests/cuda/cmocka -Itests -Itests/cuda -I$(STANDIN) -Wall -Wextra -Werror -Wshadow -Wconversion

$(patsubst %,$(BUILD)/tests/%,test_cuda_device test_cuda_oracle test_nccl): $(BUILD)/standin/hetrain_cuda.o

$(CUDA_SUITES:%=$(BUILD)/tests/%): $(BUILD)/tests/%: tests/cuda/%.cpp $(STANDIN_FILES) $(CMOCKA_HEADER) $(BUILD)/tests/standin.o $(BUILD)/tests/cuda_support.o \
    $(BUILD)/tests/implementation.o
	@echo "  compile $<"
	@$(STANDIN_CXX) $< $(filter %.o,$^) -o $@ $(LIBS)

$(BUILD)/tests/test_cuda_oracle build/on_cuda/test_cuda_oracle: tests/test_oracle.c tests/oracle/oracle_file.h

$(BUILD)/tests/cuda_support.o: tests/support.c tests/support.h hetrain.h $(CMOCKA_HEADER) | $(BUILD)/tests
	@$(CC) -std=c99 $(TEST_FLAGS) $(SANITIZER) $(INCLUDES) -D_POSIX_C_SOURCE=200809L -Itests/cuda/cmocka -Itests $(C_WARNINGS) -c $< -o $@

$(BUILD)/tests/standin.o: $(STANDIN)/standin.cpp $(STANDIN_FILES) | $(BUILD)/tests
	@echo "  compile $<"
	@$(STANDIN_CXX) -c $< -o $@

# Whole programs on the stand-in, for tests/cuda/on_gpu.sh with STANDIN=1.
standin-programs: $(BUILD)/standin/train_cuda $(BUILD)/standin/train_nccl $(BUILD)/standin/bench_cuda

$(BUILD)/standin/%_cuda: $(BUILD)/standin/%_cuda.o $(BUILD)/standin/hetrain_cuda.o $(BUILD)/tests/standin.o $(BUILD)/tests/implementation.o
	@$(CXX) $(TEST_FLAGS) $(SANITIZER) $^ -o $@ $(LIBS)

$(BUILD)/standin/train_nccl: $(patsubst %,$(BUILD)/standin/%.o,train_nccl hetrain_nccl hetrain_cuda) $(BUILD)/tests/standin.o $(BUILD)/tests/implementation.o
	@$(CXX) $(TEST_FLAGS) $(SANITIZER) $^ -o $@ $(LIBS)

$(BUILD)/standin/hetrain_nccl.o: $(STANDIN_FILES) hetrain.h | $(BUILD)/standin
	@echo "  compile $@"
	@$(TEST_CC) $(C_WARNINGS) -Wc++-compat -I$(STANDIN) -c hetrain_nccl.c -o $@

$(BUILD)/standin/train_nccl.o: programs/train.c $(HEADERS) $(STANDIN_FILES) | $(BUILD)/standin
	@echo "  compile $@"
	@$(TEST_CC) -O0 $(C_WARNINGS) $(LINKED) -DHETRAIN_CUDA=1 -DHETRAIN_NCCL=1 -c $< -o $@

$(BUILD)/standin/hetrain_cuda.o: $(STANDIN_FILES) hetrain.h | $(BUILD)/standin
	@echo "  compile $<"
	@$(STANDIN_CXX) -DHETC_EMULATED=1 -D'HETC_BLAS_WORKSPACE=size_t(4096)' -x c++ -c $< -o $@

$(BUILD)/standin/train_cuda.o: programs/train.c $(HEADERS) hetrain_cuda.cu | $(BUILD)/standin
	@echo "  compile $<"
	@$(TEST_CC) $(C_WARNINGS) $(LINKED) -DHETRAIN_CUDA=1 -c $< -o $@

$(BUILD)/standin/bench_cuda.o: tests/cuda/bench_cuda.c $(HEADERS) hetrain_cuda.cu | $(BUILD)/standin
	@echo "  compile $<"
	@$(TEST_CC) $(C_WARNINGS) $(LINKED) -c $< -o $@

$(LINKED_SUITES:%=$(BUILD)/tests/%): $(BUILD)/tests/%: $(BUILD)/tests/%.o $(BUILD)/tests/support.o $(BUILD)/tests/implementation.o
	@$(TEST_CC) $^ -o $@ -lcmocka $(LIBS)

$(BUILD)/tests/test_inside: $(BUILD)/tests/test_inside.o $(BUILD)/tests/support.o $(BUILD)/tests/implementation.o
	@$(TEST_CC) $^ -o $@ -lcmocka $(LIBS)

# The engine is optimised as users build it, and so is test_ops, which computes all again; what only calls it is built sooner, and test_inside, which
# has a copy of its own, soonest.
$(BUILD)/tests/%.o: tests/%.c $(TEST_HEADERS) | $(BUILD)/tests
	@echo "  compile $<"
	@$(TEST_CC) $(if $(filter test_inside,$*),-O0,$(if $(filter-out test_ops,$(filter test_%,$*)),-O1)) $(C_WARNINGS) -c $< -o $@

$(BUILD)/tests/implementation.o: $(PARTS:%=$(BUILD)/tests/%.o)
	@$(CC) -r -nostdlib $^ -o $@

$(PARTS:%=$(BUILD)/tests/%.o): $(BUILD)/tests/%.o: tests/implementation.c $(TEST_HEADERS) | $(BUILD)/tests
	@echo "  compile $< ($*)"
	@$(TEST_CC) $(C_WARNINGS) -D$*_alone -c $< -o $@

$(patsubst %,$(BUILD)/tests/test_%.o,choices curve far fuzz inside launch llmc outer power systems weights): $(wildcard programs/*.h)
$(BUILD)/tests/test_scaling.o: tests/bench/scaling.h
$(BUILD)/tests/test_tcp.o: util/hetrain_tcp.c tests/transport.h
$(BUILD)/tests/test_fuzz.o: $(wildcard tests/fuzz/*.[ch]) util/hetrain_tcp.c

$(BUILD)/checked/het_bench: tests/bench/het_bench.c $(wildcard tests/bench/*.h) $(HEADERS) $(BUILD)/tests/implementation.o | $(BUILD)/checked
	@echo "  compile $<"
	@$(TEST_CC) -O1 $(LINKED) $(C_WARNINGS) $< $(BUILD)/tests/implementation.o -o $@ $(LIBS)

$(BUILD)/checked/%: %.c $(HEADERS) $(BUILD)/tests/implementation.o | $(BUILD)/checked
	@echo "  compile $<"
	@$(TEST_CC) -O1 $(LINKED) $(C_WARNINGS) -Wc++-compat $< $(BUILD)/tests/implementation.o -o $@ $(LIBS)

$(BUILD)/checked/%: %.cpp $(HEADERS) $(BUILD)/tests/implementation.o | $(BUILD)/checked
	@echo "  compile $<"
	@$(CXX) -std=c++11 $(TEST_FLAGS) $(SANITIZER) $(INCLUDES) $(LINKED) $(WARNINGS) $< $(BUILD)/tests/implementation.o -o $@ $(LIBS)

$(BUILD)/checked/custom_allocator: examples/custom_allocator.c $(HEADERS) | $(BUILD)/checked
	@echo "  compile $<"
	@$(TEST_CC) -O0 $(C_WARNINGS) -Wc++-compat $< -o $@ $(LIBS)

$(BUILD)/tests $(BUILD)/checked $(BUILD)/mpi $(BUILD)/standin:
	@mkdir -p $@

.SECONDARY:

systems:
	@bash tests/tools/install.sh
	@$(MAKE) --no-print-directory -j$(JOBS) programs $(SYSTEMS_SUITES:%=$(BUILD)/tests/%) $(BUILD)/standin/train_cuda $(BUILD)/standin/bench_cuda
	@BUILD=$(BUILD) bash tests/systems.sh $(ROWS)

SYSTEMS_SUITES = test_systems test_simulate test_search test_groups test_model test_pack test_memory test_adapt test_plan test_bad_steps test_team test_team_plan test_shard test_experts test_store test_cuda_device

check-header:
	@bash tests/tools/house.sh --rooms
	@CC="$(CC)" CXX="$(CXX)" bash tests/tools/check_header.sh --all

golden:
	@bash tests/tools/install.sh
	@CC="$(CC)" bash tests/tools/golden.sh --all

# ---- longer tests -----------------------------------------------------------------------------------------------------

sanitize:
	@bash tests/tools/install.sh
	@echo 'Address and undefined behaviour sanitizers'
	@$(MAKE) --no-print-directory -k -j$(JOBS) BUILD=build/asan TEST_FLAGS='-O1 -g' SANITIZER='-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer' test-programs || true
	@bash tests/tools/run_tests.sh build/asan $(SUITES) $(CUDA_SUITES) $(SHELL_SUITES)
	@echo 'Thread sanitizer'
	@$(MAKE) --no-print-directory -k -j$(JOBS) BUILD=build/tsan TEST_FLAGS='-O1 -g' SANITIZER='-fsanitize=thread' thread-test-programs || true
	@bash tests/tools/run_tests.sh build/tsan $(THREAD_SUITES)

THREAD_SUITES = test_threads test_bits test_ranks test_replan test_groups test_team test_shard test_tcp test_outer
thread-test-programs: $(THREAD_SUITES:%=$(BUILD)/tests/%)

faults:
	@bash tests/tools/install.sh
	@$(MAKE) --no-print-directory -j$(JOBS) test-programs
	@CC="$(CC)" bash tests/tools/faults.sh

soak: sanitize faults
	@$(MAKE) --no-print-directory -j$(JOBS) test-programs
	HETRAIN_TEST_ROUNDS=$(ROUNDS) HETRAIN_TEST_FIRST_ROUND=$(FIRST_ROUND) $(BUILD)/tests/test_bits
	HETRAIN_TEST_ROUNDS=$(RANK_ROUNDS) HETRAIN_TEST_FAILURES=1000 $(BUILD)/tests/test_ranks
	HETRAIN_TEST_ROUNDS=2 bash tests/test_mpi.sh
	HETRAIN_TEST_KILLS=50 HETRAIN_TEST_DRAWN=100 bash tests/test_mpi_train.sh
	for suite in test_model test_ops test_search test_team_plan test_simulate test_cuda_device; do HETRAIN_TEST_ROUNDS=100 HETRAIN_TEST_PLANS=100 $(BUILD)/tests/$$suite || exit 1; done
	@CC="$(CC)" bash tests/tools/golden.sh --all
	bash tests/tools/soak.sh

bench: build/het_bench
	build/het_bench --what machine
	build/het_bench --what products --model gpt2:124m
	build/het_bench --what products --model llama:tiny
	build/het_bench --what attention --sequences 1 --length 1024
	build/het_bench --what parts
	@if command -v python3 > /dev/null; then python3 tests/bench/compare.py --what attention && python3 tests/bench/compare.py; \
	    else echo 'bench: no python3, so no comparison with other engines'; fi
	build/het_bench --what ranks
	build/het_bench --what predict
	build/het_bench --what predict_divided

oracle:
	@python3 -c 'import torch, transformers' 2> /dev/null || { echo 'make oracle needs python3 with torch and transformers (tests/oracle/README.md)' >&2; exit 2; }
	python3 tests/oracle/generate.py
	python3 tests/oracle/llmc.py

# Every tests/fuzz/fuzz_NAME.c is a target of clang's libFuzzer, tests/fuzz/corpus/NAME its corpus and tests/fuzz/NAME.dict, where there is one, its
# words. What is new goes to build/fuzz/found/NAME, inputs that fail to build/fuzz/NAME-*. The plain ones are not told of comparisons, which takes half of
# the time; the asserting ones are.
FUZZ_CC ?= clang
FUZZ_FLAGS = -std=c99 -g -O1 -DHETRAIN_NO_SIMD=1 -DHETRAIN_FUZZ_LINKED=1 -fno-sanitize-recover=all -fno-omit-frame-pointer $(INCLUDES)
FUZZ_asserting = '-DHETRAIN_ASSERT(condition)=do { if (!(condition)) __builtin_trap(); } while (0)'
FUZZ_plain = -DNDEBUG=1 -fno-sanitize-coverage=trace-cmp
SECONDS ?= 60
TARGETS ?= $(patsubst tests/fuzz/fuzz_%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
FUZZERS = $(foreach target,$(TARGETS),build/fuzz/$(target)-asserting build/fuzz/$(target)-plain)

fuzz: $(FUZZERS)
	@for target in $(TARGETS); do for kind in asserting plain; do bash tests/tools/fuzz.sh $$target $$kind $(SECONDS) || exit 1; done; done

build/fuzz/%.o: tests/implementation.c $(wildcard hetrain*.h util/*.h)
	@mkdir -p build/fuzz
	@echo "  compile $@"
	@$(FUZZ_CC) $(FUZZ_FLAGS) $(FUZZ_$*) -Wno-pass-failed -fsanitize=fuzzer-no-link,address,undefined -c $< -o $@

define FUZZER
build/fuzz/%-$(1): tests/fuzz/fuzz_%.c tests/fuzz/fuzz.h build/fuzz/$(1).o util/hetrain_tcp.c
	@echo "  compile $$@"
	@$$(FUZZ_CC) $$(FUZZ_FLAGS) $$(FUZZ_$(1)) -fsanitize=fuzzer,address,undefined $$< build/fuzz/$(1).o -o $$@ $$(LIBS)
endef
$(foreach kind,asserting plain,$(eval $(call FUZZER,$(kind))))

clean:
	rm -rf build
