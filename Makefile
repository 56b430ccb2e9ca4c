# Makefile - builds libtfinject.so (preload/) and tfanalyze (analysis/), and runs all checks; tests/rules.mk builds the tests.
#
# `make help` lists the targets. Switches: V=1 shows the commands, ASAN=1 builds the analyser and the unit tests with
# sanitizers in build/asan, BUILD=dir builds in another folder, WERROR=1 makes warnings errors, -jN runs N jobs instead of
# one a processor. An object has the path of its source below the folder of its tree: obj/lib, obj/libtest, obj/tool and so on.
BUILD   ?= build
B       := $(BUILD)$(if $(ASAN),/asan)
PREFIX  ?= /usr/local
VERSION := $(patsubst v%,%,$(shell git describe --tags --match 'v*' --dirty 2>/dev/null || echo 0.1.0))
PYTHON  ?= python3
Q       := $(if $(V),,@)
.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules
# A make below this one shares its jobs. A -j on the command line wins over this one.
ifeq ($(MAKELEVEL),0)
MAKEFLAGS += -j$(shell nproc)
endif
# Tasks, as opposed to files and groups of files. `make clean all` does one after the other.
TASKS := demo test check check-fast soak lint format bench install wheel deb compdb hooks clean help help-tests
ifneq ($(and $(word 2,$(MAKECMDGOALS)),$(filter $(TASKS),$(MAKECMDGOALS))),)
.NOTPARALLEL:
endif

# Both programs contain SHARED_SRCS. The files of preload/alloc are those of another library.
PRELOAD_SRCS := $(sort $(filter-out preload/alloc/%,$(wildcard preload/*.c preload/*/*.c)))
SHIMS        := $(wildcard preload/python/shim/shim*.py)
CUDA_OBJS     = $(addprefix $(B)/obj/lib/preload/cuda/,cuda.o cudart.o)
CUPTI_OBJS    = $(addprefix $(B)/obj/lib/preload/cupti/,layout.o other_calls.o other_clients.o other_clients_v2.o)
NCCL_OBJS     = $(B)/obj/lib/preload/nccl/nccl.o
# A look-up must return the address of our own wrapper, not that of a library loaded before ours.
LDFLAGS_CUDA  = -Wl,-Bsymbolic-functions
SHARED_SRCS  := $(wildcard include/*.c)
TOOL_SRCS    := $(filter-out analysis/mpi/%,$(wildcard analysis/*.c analysis/*/*.c analysis/*/*/*.c))
DEMO_SRCS    := $(wildcard scripts/demo/*.cpp scripts/demo/*.c)

LIB_OBJS     := $(patsubst %.c,$(B)/obj/lib/%.o,$(PRELOAD_SRCS) $(SHARED_SRCS) shims.c schema.c)
ALLOC_OBJS   := $(patsubst %.c,$(B)/obj/lib/%.o,$(wildcard preload/alloc/*.c))
TOOL_OBJS    := $(patsubst %.c,$(B)/obj/tool/%.o,$(TOOL_SRCS) $(SHARED_SRCS) help_pages.c page_text.c)
DEMOS        := $(patsubst scripts/demo/%,$(B)/demo/%,$(basename $(DEMO_SRCS)))

ifeq ($(origin CC),default)
CC       := gcc
endif
ifeq ($(origin CXX),default)
CXX      := g++
endif
comma    := ,
WARN     := -Wall -Wextra -Wshadow $(if $(WERROR),-Werror)
SANITIZE := $(if $(ASAN),-fsanitize=address$(comma)undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -Wno-maybe-uninitialized)
# GCC takes half as long at -Og as at -O1 with sanitizers, and the program as long. Its warning of that name errs at -Og.
OPT      ?= $(if $(ASAN),-Og,-O2) -g1
# The library is always built with optimisation, because the check of its frame sizes needs that.
OPT_LIB  ?= $(OPT)
BASE      = $(OPT) $(WARN) $(SANITIZE) -DTFI_VERSION='"$(VERSION)"' -Iinclude $(NVTX_INC:%=-isystem %) -MMD -MP $(CPPFLAGS) $(CFLAGS)
CFLAGS_C  = -std=gnu11 -D_GNU_SOURCE $(BASE)
CFLAGS_CXX = -std=c++17 $(BASE)
# The library's thread state is one initial-exec TLS pointer. The library exports only the symbols of its version script.
CFLAGS_LIB = $(CFLAGS_C) $(OPT_LIB) -fPIC -fvisibility=hidden -ftls-model=initial-exec -Ipreload -include include/glibc.h \
             -Wframe-larger-than=$(FRAME_BYTES)
# No exception passes through the analyser's C: without tables for it the wheel is 56 KB smaller.
CFLAGS_TOOL = $(CFLAGS_C) $(if $(ASAN),,-fno-asynchronous-unwind-tables) -Ianalysis -DTFI_TOOL -include include/glibc.h $(SIZE_TOOL)
# Commands and findings print what other folders compute: for size the wheel is 40 KB smaller, and answers take 1 % more
# instructions (`dump` 5 %).
SMALL = -Os
SMALL_OBJS = $(filter $(B)/obj/tool/analysis/commands/% $(B)/obj/tool/analysis/advise/%,$(TOOL_OBJS))
# Waking and finishing use less than 4 KiB of stack, so a frame may hold one line of text. The files of LARGE_FRAMES have
# larger frames in functions that waking and finishing never call: constructors, stacks, texts of operators, the search for
# CUPTI. Clang inlines more than GCC and has larger frames. Only WERROR=1 makes a large frame an error: OPT=-O0 enlarges all.
FRAME_BYTES = $(if $(findstring clang,$(CC)),1536,1152)
LARGE_FRAMES = $(foreach tree,lib libtest,$(patsubst %,$(B)/obj/$(tree)/preload/%.o,python/callstack cupti/find_library nvtx/nvtx nvtx/names python/builtins torch/execution torch/torch torch/texts))
LDFLAGS_LIB = -shared -Wl,-z,defs -Wl,-z,now -Wl,-z,nodelete -Wl,-soname,$(@F) -Wl,--as-needed -static-libgcc -Wl,--exclude-libs,ALL
# Before glibc 2.34 libpthread and libdl contain threads and dlopen; newer releases keep them as empty libraries.
LDLIBS_LIB  = -l:libz.a -Wl,--no-as-needed -l:libpthread.so.0 -l:libdl.so.2 -Wl,--as-needed
# tfanalyze links the demangler of the C++ runtime statically, because kernel names are C++ names. Its thread functions and
# dlopen are those of old systems, as the library's, and analysis/start.c has its start.
LDLIBS_TOOL = -l:libz.a -l:libjansson.a -Wl,-u,__gcclibcxx_demangle_callback -l:libsupc++.a -Wl,--no-as-needed -l:libpthread.so.0 -l:libdl.so.2 -Wl,--as-needed -lm
LDFLAGS_TOOL = $(if $(ASAN)$(filter-out x86_64%,$(shell $(CC) -dumpmachine)),,-Wl,--wrap=__libc_start_main)

.PHONY: all everything FORCE $(TASKS)
# Sanitizers do not work in a preloaded library: ASAN=1 builds neither the library nor the unit tests of its parts.
all: $(B)/tfanalyze $(if $(ASAN),units,$(B)/libtfinject.so $(B)/libtfinject-alloc.so $(B)/man/tfanalyze.1)
everything: all

# All other targets need packages and NVIDIA's headers. Make runs scripts/bootstrap first, then starts over.
ifneq ($(filter-out clean help help-tests hooks,$(or $(MAKECMDGOALS),all)),)
include $(BUILD)/headers.mk
endif
$(BUILD)/headers.mk: scripts/bootstrap
	@BUILD=$(BUILD) scripts/bootstrap build
	@touch $@

# Objects are rebuilt when the compiler, a flag or the version has changed.
FLAGS = $(CC) $(CXX) $(CFLAGS_LIB) $(CFLAGS_TOOL) $(SMALL) $(HEADERS_FROM)
$(B)/flags: FORCE
	@mkdir -p $(@D)
	@printf '%s\n' "$(subst ",\",$(FLAGS))" | cmp -s - $@ || printf '%s\n' "$(subst ",\",$(FLAGS))" >$@

# The compiler's warnings stay beside the object in NAME.warn, where scripts/lint reads them.
define compile
@mkdir -p $(@D)
$(if $(V),,@printf '  %-8s%s\n' $(1) $<)
$(Q)$(2) 2>$@.warn; status=$$?; cat $@.warn >&2; exit $$status
endef
define link
@mkdir -p $(@D)
$(if $(V),,@printf '  %-8s%s\n' $(1) $@)
$(Q)$(2)
endef

$(CUDA_OBJS): CPPFLAGS += $(patsubst %,-isystem %,$(sort $(CUDA_INC) $(CUDART_INC)))
$(CUPTI_OBJS): CPPFLAGS += $(patsubst %,-isystem %,$(sort $(CUPTI_INC) $(CUDA_INC)))
$(NCCL_OBJS): CPPFLAGS += $(patsubst %,-isystem %,$(sort $(NCCL_INC) $(CUDART_INC) $(CUDA_INC)))
$(LARGE_FRAMES): FRAME_BYTES = 5376
$(SMALL_OBJS): private SIZE_TOOL = $(if $(filter -O2,$(OPT)),$(SMALL))
$(B)/obj/lib/%.o: %.c $(B)/flags
	$(call compile,CC,$(CC) $(CFLAGS_LIB) -c -o $@ $<)
$(B)/obj/tool/%.o: %.c $(B)/flags
	$(call compile,CC,$(CC) $(CFLAGS_TOOL) -c -o $@ $<)

# Make does not notice a removed shim, so the names of the embedded shims are compared with the files.
EMBEDDED := $(shell sed -nE 's|^ *\{"(shim\w*)",$$|preload/python/shim/\1.py|p' $(B)/shims.c 2>/dev/null)
$(B)/shims.c: scripts/gen-tables $(SHIMS) $(if $(filter-out $(SHIMS),$(EMBEDDED)),FORCE)
	$(call link,GEN,$(PYTHON) scripts/gen-tables embed >$@)

$(B)/schema.c: scripts/gen-tables include/records.def
	$(call link,GEN,$(PYTHON) scripts/gen-tables schema >$@)

TABLES = scripts/gen-tables $(wildcard preload/*.def preload/*/*.def)
$(B)/exports.map: $(TABLES)
	$(call link,GEN,$(PYTHON) scripts/gen-tables exports >$@)
$(B)/libtfinject.so: $(LIB_OBJS) $(B)/exports.map
	$(call link,LINK,$(CC) $(LDFLAGS_LIB) $(LDFLAGS_CUDA) -Wl$(comma)--version-script=$(B)/exports.map -o $@ $(LIB_OBJS) $(LDLIBS_LIB))
# This one exports what its source marks. Its calls of its own functions find the program's, where that has them.
$(B)/libtfinject-alloc.so: $(ALLOC_OBJS)
	$(call link,LINK,$(CC) $(LDFLAGS_LIB) -o $@ $(ALLOC_OBJS) -Wl$(comma)--no-as-needed -l:libdl.so.2)
# The pages of `tfanalyze help`, with tables filled in, become one C file and the man pages. A folder is newer when a page is removed.
HELP_PAGES = $(foreach folder,$(patsubst %/,%,analysis/help/ $(wildcard analysis/help/*/ analysis/help/*/*/)),$(folder) $(wildcard $(folder)/*.txt))
HELP = scripts/gen-tables scripts/help_pages.py $(wildcard include/*.def analysis/*.def analysis/*/*/*.def preload/*.def preload/*/*.def) $(HELP_PAGES)
$(B)/help_pages.c: $(HELP)
	$(call link,GEN,$(PYTHON) scripts/gen-tables help >$@)
# All pages are made at once, and this one has the commands.
$(B)/man/tfanalyze.1: $(HELP)
	$(call link,GEN,$(PYTHON) scripts/gen-tables man $(@D))
# The template of pages, its style and its script become one C file.
$(B)/page_text.c: scripts/gen-tables $(wildcard analysis/write/page/*.html analysis/write/page/*.css analysis/write/page/*.js)
	$(call link,GEN,$(PYTHON) scripts/gen-tables page >$@)
# The rules of objects find the generated sources here.
vpath shims.c $(B)
vpath schema.c $(B)
vpath help_pages.c $(B)
vpath page_text.c $(B)
$(B)/tfanalyze: $(TOOL_OBJS)
	$(call link,LINK,$(CC) $(SANITIZE) $(LDFLAGS_TOOL) -o $@ $(TOOL_OBJS) $(LDLIBS_TOOL))
# The same objects under MPI, of OpenMPI or MPICH: MPICC=mpicc.mpich. Its own main replaces that of tfanalyze.
MPICC ?= mpicc
.PHONY: mpi
mpi: $(B)/tfanalyze-mpi ## build tfanalyze-mpi, which summarises the files of a run in many processes (needs mpicc)
$(B)/obj/mpi/tfanalyze_mpi.o: analysis/mpi/tfanalyze_mpi.c $(B)/flags
	$(call compile,CC,OMPI_CC="$(CC)" MPICH_CC="$(CC)" $(MPICC) $(CFLAGS_TOOL) -c -o $@ $<)
$(B)/obj/mpi/commands.o: $(B)/obj/tool/analysis/main.o
	$(call link,GEN,objcopy --redefine-sym main=unused_main $< $@)
MPI_OBJS = $(B)/obj/mpi/tfanalyze_mpi.o $(B)/obj/mpi/commands.o $(filter-out %/analysis/main.o,$(TOOL_OBJS))
$(B)/tfanalyze-mpi: $(MPI_OBJS)
	$(call link,LINK,OMPI_CC="$(CC)" MPICH_CC="$(CC)" $(MPICC) $(SANITIZE) $(LDFLAGS_TOOL) -o $@ $(MPI_OBJS) $(LDLIBS_TOOL))
-include $(B)/obj/mpi/tfanalyze_mpi.d
everything: $(if $(ASAN),,$(if $(shell command -v $(MPICC)),mpi))
$(B)/demo/%: scripts/demo/%.cpp $(B)/flags
	$(call compile,CXX,$(CXX) $(CFLAGS_CXX) -MF $@.d -o $@ $< -pthread -ldl)
$(B)/demo/%: scripts/demo/%.c $(B)/flags
	$(call compile,CC,$(CC) $(CFLAGS_C) -isystem $(CUDA_INC) -MF $@.d -o $@ $< -ldl -lm)

include tests/rules.mk

# scripts/gpu-check needs these files on a machine that cannot build. The last is a separate client of CUPTI.
CARRIED = $(B)/libtfinject.so $(B)/tfanalyze $(B)/demo/diffusion $(B)/gpu/libcupti_raw.so
.PHONY: carried
carried: $(CARRIED) ## build the files that scripts/gpu-check needs on a machine with a GPU
everything: $(if $(ASAN),,$(B)/gpu/libcupti_raw.so)
$(B)/gpu/lib%.so: scripts/gpu/%.c $(B)/flags
	$(call compile,CC,$(CC) $(CFLAGS_C) -fPIC -shared $(patsubst %,-isystem %,$(sort $(CUPTI_INC) $(CUDA_INC))) -MF $@.d -o $@ $< -pthread -ldl)
-include $(B)/gpu/libcupti_raw.so.d

demo: ## run the demonstration: a PyTorch script, a C++ program, a C pipeline on a real or simulated GPU; then show the results
	@scripts/bootstrap build python
	$(Q)$(MAKE) --no-print-directory all $(DEMOS) $(addprefix $(B)/simgpu/,libcuda.so.1 libcupti.so.13)
	$(Q)scripts/demo/run

# A recipe that uses it begins with `+`: otherwise make does not see that it calls make, and the build runs one job.
MAKE_ALL = $(MAKE) --no-print-directory everything
# Three workers keep two processors busy, for many tests wait for a program. Only a failed test keeps its directory: those
# of a soak would fill a disk with 40 GB. A worker that ends, ends the run: xdist gives a new worker one test, and the worker
# waits forever for a second one before it runs the first. Where CI is set, pytest works out the whole difference of two long
# answers, which takes minutes.
PYTEST = env -u CI PYTHONDONTWRITEBYTECODE=1 $(CURDIR)/build/venv/bin/python -m pytest -q -p no:cacheprovider -p no:anyio --max-worker-restart=0 -o tmp_path_retention_policy=failed -n $(or $(TEST_JOBS),3) --dist loadgroup --durations=10 tests
test: ## build and check everything; the last line is `N passed, N failed, N skipped`
	@scripts/bootstrap
	+$(Q)$(MAKE_ALL)
	+$(Q)$(MAKE_ALL) ASAN=1
	$(Q)$(PYTEST) $(T)
check: ## build and run the tests that need no sanitizers; T='-k nvtx' selects tests, as in test and soak
	@scripts/bootstrap python
	+$(Q)$(MAKE_ALL)
	$(Q)$(PYTEST) -m 'not sanitized' $(T)
check-fast: ## the same without torch, the simulated GPU and slow tests: about a minute after the build
	@scripts/bootstrap python
	+$(Q)$(MAKE_ALL)
	$(Q)$(PYTEST) --ignore tests/gpu -m 'not (sanitized or torch or gpu or slow)' $(T)
# Each day samples other cases of the longest lists. SOAK_SEED=N repeats a sample; SOAK_ALL=1 runs every case.
soak: ## run the long tests: mutations, growth, fuzzing, kills, foreign programs (about an hour; SOAK_ALL=1: all cases, hours)
	@scripts/bootstrap
	+$(Q)$(MAKE_ALL) fuzz
	+$(Q)$(MAKE_ALL) ASAN=1
	$(Q)$(PYTEST) -m soak $(T)
format: ## format the C and C++ sources in place
	$(Q)git ls-files -co --exclude-standard '*.c' '*.h' '*.cpp' | while read -r f; do [ ! -f "$$f" ] || echo "$$f"; done | xargs clang-format-14 -i
lint: ## check format, warnings of gcc and clang, both sources of headers, cppcheck, shellcheck, tables, layers
	@scripts/bootstrap build python lint
	$(Q)scripts/lint
bench: ## measure the figures of `tfanalyze help measurements`, beside uftrace, dftracer, zlib, HTA and the TensorBoard plugin; QUICK=1: small counts
	@scripts/bootstrap build python bench
	$(Q)$(MAKE) --no-print-directory everything
	$(Q)failed=; for bench in records growth cuda kineto io memory torch; do scripts/bench/$$bench $(if $(QUICK),--quick) || failed="$$failed $$bench"; done; \
	[ -z "$$failed" ] || { echo "bench: failed:$$failed" >&2; exit 1; }
install: all ## install into PREFIX (/usr/local), below DESTDIR
	install -D -m 755 -t $(DESTDIR)$(PREFIX)/lib $(B)/libtfinject.so $(B)/libtfinject-alloc.so
	install -D -m 755 $(B)/tfanalyze $(DESTDIR)$(PREFIX)/bin/tfanalyze
	install -D -m 755 scripts/tfrun $(DESTDIR)$(PREFIX)/bin/tfrun
	install -D -m 755 -t $(DESTDIR)$(PREFIX)/lib/tfinject scripts/tfharness.py
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/lib/tfinject/tfharness_parts scripts/tfharness_parts/*.py
	ln -sfn ../lib/tfinject/tfharness.py $(DESTDIR)$(PREFIX)/bin/tfharness.py
	install -D -m 644 include/tfinject.h $(DESTDIR)$(PREFIX)/include/tfinject.h
	for page in $(B)/man/*; do install -D -m 644 $$page $(DESTDIR)$(PREFIX)/share/man/man$${page##*.}/$${page##*/} || exit 1; done
wheel: all ## write the wheel for pip, one for every Python, into build/dist
	$(Q)scripts/package/wheel $(B) '$(VERSION)' $(BUILD)/dist
deb: all ## write the Debian package into build/dist
	$(Q)scripts/package/deb $(B) '$(VERSION)' $(BUILD)/dist
compdb: ## write build/compile_commands.json, which clangd finds by itself
	$(Q)$(MAKE) --no-print-directory --always-make --dry-run --old-file=$(BUILD)/headers.mk V=1 everything fuzz | scripts/compdb >$(BUILD)/compile_commands.json
hooks: ## install git's pre-commit hook, which checks format and tables of the staged files (scripts/pre-commit)
	$(Q)scripts/pre-commit --install
clean: ## remove compiled files; build/venv and build/nvidia stay (rm -rf build removes everything)
	rm -rf $(addprefix $(BUILD)/,obj asan unit fuzz victims demo gpu simgpu simgpu12 victims_gpu test lint flags pycache headers.mk exports.map shims.c schema.c help_pages.c page_text.c man dist compile_commands.json tfanalyze tfanalyze-mpi libtfinject.so libtfinject-alloc.so)
help: ## list the targets
	@sed -nE 's/^([a-z-]+):.*## /\1\t/p' $(firstword $(MAKEFILE_LIST)) | expand -t 12
help-tests: ## list the subject of each test file
	@scripts/gen-tables tests

-include $(LIB_OBJS:.o=.d) $(ALLOC_OBJS:.o=.d) $(TOOL_OBJS:.o=.d) $(DEMOS:=.d)
