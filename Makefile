# PatrickStar in C. `make help` lists the commands.
#
# make [DEBUG=0..3] [SAN=address,undefined] [CC=clang] [WERROR=1]
# Each combination builds in a folder of its own, build/<cc>-d<debug>[-<san>]; the default one also fills
# build/pstar and build/libpatrickstar.{a,so}. No detection: what you ask for is what you get, or the compiler says why not.
CC      = gcc
DEBUG  ?= 0
SAN    ?=
WERROR ?=
PREFIX ?= /usr/local
DESTDIR ?=

VERSION := 0.1.0
comma := ,
V := $(CC)-d$(DEBUG)$(if $(SAN),-$(subst $(comma),-,$(SAN)))
B := build/$V

# ---- Debian packages: what `make deps` installs; each is named once, here -------------------------------------------
DEPS_BUILD := gcc libc6-dev pkg-config libdnnl-dev libjansson-dev libpcre2-dev liburing-dev libxxhash-dev
DEPS_TEST  := libcmocka-dev
DEPS_CHECK := clang clang-format libclang-rt-14-dev

# ---- compiler -------------------------------------------------------------------------------------------------------
WARN := -Wall -Wextra -Wpedantic -Wshadow -Wundef -Wconversion -Wstrict-prototypes -Wmissing-prototypes \
        -Wvla -Wformat=2 -Wswitch-enum -Wcast-qual -Wwrite-strings -Wpointer-arith
OPT  := $(if $(filter 0,$(DEBUG)),-O3,-O1)
# clang only parses the pragmas (libgomp syntax), because oneDNN brings gcc's OpenMP and two runtimes must not meet.
OMP  := $(if $(findstring clang,$(CC)),-fopenmp=libgomp -Wno-openmp-clauses,-fopenmp)
CFLAGS   ?=
ALL_CFLAGS = -std=c11 -g -fPIC -fvisibility=hidden -ffp-contract=off -fno-math-errno $(OPT) $(OMP) $(WARN) \
             $(if $(WERROR),-Werror) $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer -fno-sanitize-recover=all) $(CFLAGS)
CPPFLAGS += -Iinclude -Isrc -D_GNU_SOURCE -DPS_DEBUG=$(DEBUG)
LDFLAGS  += $(if $(SAN),-fsanitize=$(SAN)) $(OMP)
LDLIBS   += -ldnnl -ljansson -lpcre2-8 -luring -lxxhash -lm -lpthread

# ---- files ----------------------------------------------------------------------------------------------------------
# src/kernel/cpu/isa/*.c are compiled once for each instruction set, with PS_ISA naming it; see cpu_isa.h there.
SRC     := $(sort $(filter-out $(wildcard src/kernel/cpu/isa/*.c),$(wildcard src/*/*.c src/*/*/*.c)))
SRC_ISA := $(sort $(wildcard src/kernel/cpu/isa/*.c))
ISAS    := portable avx2 avx512 avx512_bf16
ISA_FLAGS_portable    :=
ISA_FLAGS_avx2        := -mavx2 -mfma -mf16c
ISA_FLAGS_avx512      := $(ISA_FLAGS_avx2) -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512
ISA_FLAGS_avx512_bf16 := $(ISA_FLAGS_avx512) -mavx512bf16

OBJ   := $(SRC:%.c=$B/%.o) $(foreach i,$(ISAS),$(SRC_ISA:%.c=$B/%.$i.o))
CLI   := $(patsubst %.c,$B/%.o,$(sort $(wildcard cli/*.c)))
TESTS := $(patsubst %.c,$B/%,$(sort $(wildcard test/*/test_*.c)))

.DEFAULT_GOAL := all
all: build/pstar build/libpatrickstar.a build/libpatrickstar.so

# The default variant is also found under its short name.
build/%: $B/%
	@mkdir -p $(@D)
	@cp -f $< $@

$B/libpatrickstar.a: $(OBJ)
	@rm -f $@
	$(AR) rcs $@ $^
$B/libpatrickstar.so: $(OBJ)
	$(CC) -shared -Wl,-soname,libpatrickstar.so.0 $(LDFLAGS) -o $@ $^ $(LDLIBS)
$B/pstar: $(CLI) $B/libpatrickstar.a
	$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)
$B/%.o: %.c Makefile
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(CPPFLAGS) -MMD -MP -c -o $@ $<
$B/test/%: test/%.c $B/libpatrickstar.a Makefile
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(CPPFLAGS) -Itest -MMD -MP -MF $@.d -o $@ $< $B/libpatrickstar.a $(LDFLAGS) -lcmocka $(LDLIBS)

define isa_rule
$B/%.$1.o: %.c Makefile
	@mkdir -p $$(@D)
	$$(CC) $$(ALL_CFLAGS) $$(ISA_FLAGS_$1) $$(CPPFLAGS) -DPS_ISA=$1 -DPS_ISA_$1=1 -MMD -MP -c -o $$@ $$<
endef
$(foreach i,$(ISAS),$(eval $(call isa_rule,$i)))

tests: $(TESTS)

test: tests $B/pstar
	@sh test/run.sh $B

clean:
	rm -rf build

.PHONY: all tests test clean
.SECONDARY:
-include $(OBJ:.o=.d) $(CLI:.o=.d) $(TESTS:=.d)
