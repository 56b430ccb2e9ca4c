# Makefile - builds libtfinject.so (preload/) and tfanalyze (analysis/), and runs all checks.
#
# `make help` lists the targets. Switches: V=1 shows the commands, ASAN=1 builds the analyser and the unit tests with
# sanitizers in build/asan, BUILD=dir builds in another folder, WERROR=1 makes warnings errors. An object has the path of
# its source below the folder of its tree: obj/lib, obj/libtest, obj/tool and so on.
BUILD   ?= build
B       := $(BUILD)$(if $(ASAN),/asan)
PREFIX  ?= /usr/local
VERSION := $(patsubst v%,%,$(shell git describe --tags --match 'v*' --dirty 2>/dev/null || echo 0.1.0))
PYTHON  ?= python3
Q       := $(if $(V),,@)
.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

# The library runs inside other people's processes, so its sources are listed by name. Both programs contain SHARED_SRCS.
PRELOAD_SRCS := preload/tfinject.c
PRELOAD_SRCS += $(addprefix preload/base/,block_sizes.c files.c fmt.c frame.c glibc.c last_thread.c process.c raw_dlsym.c stack_room.c stderr.c sys.c)
PRELOAD_SRCS += $(addprefix preload/record/,background.c chunk.c clock.c cost.c encode.c enter.c facts.c log.c pool.c states.c strings.c thread.c upkeep.c worker.c writer.c)
PRELOAD_SRCS += $(addprefix preload/control/,command.c config.c helper.c plan.c rank.c schedule.c trace.c trigger.c values.c)
PRELOAD_SRCS += $(addprefix preload/stage/,allocator_segments.c allocator_totals.c console.c open_names.c open_stack.c stage.c telefuser_timing.c timing.c unmatched.c user_api.c watch.c)
PRELOAD_SRCS += $(addprefix preload/hooks/,copies.c dl.c elsewhere.c hooks.c posix.c recorded.c)
PRELOAD_SRCS += $(addprefix preload/cuda/,blocks.c calls.c cuda.c cudart.c cudart_changed.c device_timing.c event_launches.c event_times.c graphs.c \
                  kernel_names.c routes.c sync_stages.c values.c)
PRELOAD_SRCS += $(addprefix preload/cupti/,buffers.c calls.c clock.c cupti.c devices.c find.c kinds.c layout.c other_calls.c other_clients.c other_clients_v2.c \
                  records.c select.c stage_sums.c state.c)
PRELOAD_SRCS += $(addprefix preload/torch/,c10.c collectives.c cxx.c execution.c hierarchy.c inputs.c sources.c streams.c texts.c torch.c)
PRELOAD_SRCS += $(addprefix preload/python/,builtins.c callstack.c frames.c native_names.c python.c telefuser.c torch_builtins.c unwinder.c)
PRELOAD_SRCS += $(addprefix preload/host/,host.c patches.c ranges.c)
PRELOAD_SRCS += $(addprefix preload/hang/,other_frames.c raised.c silence.c)
PRELOAD_SRCS += $(addprefix preload/nccl/,calls.c communicators.c nccl.c plugin.c)
PRELOAD_SRCS += preload/dftracer/interface.c
PRELOAD_SRCS += $(addprefix preload/io/,descriptors.c io.c paths.c posix.c process.c selection.c stdio.c sums.c uring.c uring_ops.c uring_pending.c)
PRELOAD_SRCS += $(addprefix preload/nvml/,library.c sampler.c)
PRELOAD_SRCS += $(addprefix preload/nvtx/,names.c nvtx.c)
SHIMS        := $(wildcard preload/python/shim*.py)
CUDA_OBJS     = $(foreach tree,lib libtest,$(addprefix $(B)/obj/$(tree)/preload/cuda/,cuda.o cudart.o))
CUPTI_OBJS    = $(foreach tree,lib libtest,$(addprefix $(B)/obj/$(tree)/preload/cupti/,layout.o other_calls.o other_clients.o other_clients_v2.o))
NCCL_OBJS     = $(foreach tree,lib libtest,$(B)/obj/$(tree)/preload/nccl/nccl.o)
# A look-up must return the address of our own wrapper, not that of a library loaded before ours.
LDFLAGS_CUDA  = -Wl,-Bsymbolic-functions
SHARED_SRCS  := $(wildcard include/*.c)
TOOL_SRCS    := $(wildcard analysis/*.c analysis/*/*.c analysis/*/*/*.c)
UNIT_SRCS    := $(wildcard tests/unit/*.c)
VICTIM_LIBS  := $(patsubst tests/victims/lib%.c,%,$(wildcard tests/victims/lib*.c))
VICTIM_SRCS  := $(filter-out tests/victims/lib%,$(wildcard tests/victims/*.c tests/victims/*.cpp))
FUZZ_SRCS    := $(wildcard tests/fuzz/*.c)
DEMO_SRCS    := $(wildcard scripts/demo/*.cpp scripts/demo/*.c)

LIB_OBJS     := $(patsubst %.c,$(B)/obj/lib/%.o,$(PRELOAD_SRCS) $(SHARED_SRCS) shims.c)
LIBTEST_OBJS := $(LIB_OBJS:$(B)/obj/lib/%=$(B)/obj/libtest/%) $(B)/obj/libtest/tests/dummy.o
TOOL_OBJS    := $(patsubst %.c,$(B)/obj/tool/%.o,$(TOOL_SRCS) $(SHARED_SRCS) help_pages.c)
UNITS        := $(patsubst tests/unit/%.c,$(B)/unit/%,$(if $(ASAN),$(filter-out tests/unit/preload_%,$(UNIT_SRCS)),$(UNIT_SRCS)))
VICTIMS      := $(VICTIM_LIBS:%=$(B)/victims/lib%.so) $(patsubst tests/victims/%,$(B)/victims/%,$(basename $(VICTIM_SRCS)))
FUZZ_OBJS    := $(patsubst %.c,$(BUILD)/obj/fuzz/%.o,$(filter-out analysis/main.c,$(TOOL_SRCS)) $(SHARED_SRCS) help_pages.c)
FUZZERS      := $(FUZZ_SRCS:tests/fuzz/%.c=$(BUILD)/fuzz/%)
DEMOS        := $(patsubst scripts/demo/%,$(B)/demo/%,$(basename $(DEMO_SRCS)))

ifeq ($(origin CC),default)
CC       := gcc
endif
ifeq ($(origin CXX),default)
CXX      := g++
endif
comma    := ,
WARN     := -Wall -Wextra -Wshadow $(if $(WERROR),-Werror)
SANITIZE := $(if $(ASAN),-fsanitize=address$(comma)undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
OPT      ?= -O2 -g
# The library is always built with optimisation, because the check of its frame sizes needs that.
OPT_LIB  ?= $(OPT)
BASE      = $(OPT) $(WARN) $(SANITIZE) -DTFI_VERSION='"$(VERSION)"' -Iinclude $(NVTX_INC:%=-isystem %) -MMD -MP $(CPPFLAGS) $(CFLAGS)
CFLAGS_C  = -std=gnu11 -D_GNU_SOURCE $(BASE)
CFLAGS_CXX = -std=c++17 $(BASE)
# The library's thread state is one initial-exec TLS pointer. The library exports only the symbols of its version script.
CFLAGS_LIB = $(CFLAGS_C) $(OPT_LIB) -fPIC -fvisibility=hidden -ftls-model=initial-exec -Ipreload -include preload/base/glibc.h \
             -Wframe-larger-than=$(FRAME_BYTES)
# Waking and finishing use less than 4 KiB of stack, so a frame may hold one line of text. The files of LARGE_FRAMES have
# larger frames in functions that waking and finishing never call: constructors, stacks, texts of operators, the search for
# CUPTI. Clang inlines more than GCC and has larger frames. Only WERROR=1 makes a large frame an error: OPT=-O0 enlarges all.
FRAME_BYTES = $(if $(findstring clang,$(CC)),1536,1152)
LARGE_FRAMES = $(foreach tree,lib libtest,$(patsubst %,$(B)/obj/$(tree)/preload/%.o,python/callstack cupti/find nvtx/nvtx nvtx/names python/builtins torch/execution torch/torch torch/texts))
LDFLAGS_LIB = -shared -Wl,-z,defs -Wl,-z,now -Wl,-z,nodelete -Wl,-soname,libtfinject.so -Wl,--as-needed -static-libgcc -Wl,--exclude-libs,ALL $(LDFLAGS_CUDA)
# Before glibc 2.34 libpthread and libdl contain threads and dlopen; newer releases keep them as empty libraries.
LDLIBS_LIB  = -l:libz.a -Wl,--no-as-needed -l:libpthread.so.0 -l:libdl.so.2 -Wl,--as-needed
# tfanalyze links the demangler of the C++ runtime statically, because kernel names are C++ names.
LDLIBS_TOOL = -l:libz.a -l:libjansson.a -Wl,-u,__cxa_demangle -l:libsupc++.a -pthread -lm
CHECK_CFLAGS = $(shell pkg-config --cflags check)
CHECK_LIBS   = $(shell pkg-config --libs check)

.PHONY: all demo test check check-fast soak lint bench compdb hooks install clean help help-tests everything units fuzz victims FORCE
# Sanitizers do not work in a preloaded library: ASAN=1 builds neither the library nor the unit tests of its parts.
all: $(B)/tfanalyze $(if $(ASAN),units,$(B)/libtfinject.so)
everything: all units $(if $(ASAN),fuzz,$(B)/test/libtfinject.so victims $(DEMOS))
units: $(UNITS)
fuzz: $(FUZZERS)
victims: $(VICTIMS)

# All other targets need packages and NVIDIA's headers. Make runs scripts/bootstrap first, then starts over.
ifneq ($(filter-out clean help help-tests hooks,$(or $(MAKECMDGOALS),all)),)
include $(BUILD)/headers.mk
endif
$(BUILD)/headers.mk: scripts/bootstrap
	@BUILD=$(BUILD) scripts/bootstrap build
	@touch $@

# Objects are rebuilt when the compiler, a flag or the version has changed.
FLAGS = $(CC) $(CXX) $(CFLAGS_LIB) $(HEADERS_FROM)
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
$(B)/obj/lib/%.o: %.c $(B)/flags
	$(call compile,CC,$(CC) $(CFLAGS_LIB) -c -o $@ $<)
$(B)/obj/libtest/%.o: %.c $(B)/flags
	$(call compile,CCTEST,$(CC) $(CFLAGS_LIB) -DTFI_TEST_HOOKS -Itests -c -o $@ $<)
$(B)/obj/tool/%.o: %.c $(B)/flags
	$(call compile,CC,$(CC) $(CFLAGS_C) -Ianalysis -c -o $@ $<)

# Make does not notice a removed shim, so the names of the embedded shims are compared with the files.
EMBEDDED := $(shell sed -nE 's|^ *\{"(shim\w*)",$$|preload/python/\1.py|p' $(B)/shims.c 2>/dev/null)
$(B)/shims.c: scripts/gen-tables $(SHIMS) $(if $(filter-out $(SHIMS),$(EMBEDDED)),FORCE)
	$(call link,GEN,$(PYTHON) scripts/gen-tables embed >$@)
$(B)/obj/lib/shims.o: $(B)/shims.c $(B)/flags
	$(call compile,CC,$(CC) $(CFLAGS_LIB) -c -o $@ $<)
$(B)/obj/libtest/shims.o: $(B)/shims.c $(B)/flags
	$(call compile,CCTEST,$(CC) $(CFLAGS_LIB) -c -o $@ $<)

TABLES = scripts/gen-tables $(wildcard preload/*.def preload/*/*.def tests/dummy.def)
$(B)/exports.map: $(TABLES)
	$(call link,GEN,$(PYTHON) scripts/gen-tables exports >$@)
$(B)/test/exports.map: $(TABLES)
	$(call link,GEN,$(PYTHON) scripts/gen-tables exports --test >$@)
$(B)/libtfinject.so: $(LIB_OBJS) $(B)/exports.map
	$(call link,LINK,$(CC) $(LDFLAGS_LIB) -Wl$(comma)--version-script=$(B)/exports.map -o $@ $(LIB_OBJS) $(LDLIBS_LIB))
$(B)/test/libtfinject.so: $(LIBTEST_OBJS) $(B)/test/exports.map
	$(call link,LINK,$(CC) $(LDFLAGS_LIB) -Wl$(comma)--version-script=$(B)/test/exports.map -o $@ $(LIBTEST_OBJS) $(LDLIBS_LIB))
# The pages of `tfanalyze help` become one C file. A folder is newer when a page is removed.
HELP_PAGES = $(foreach folder,$(patsubst %/,%,analysis/help/ $(wildcard analysis/help/*/ analysis/help/*/*/)),$(folder) $(wildcard $(folder)/*.txt))
$(B)/help_pages.c: scripts/gen-tables scripts/help_pages.py analysis/commands.def $(HELP_PAGES)
	$(call link,GEN,$(PYTHON) scripts/gen-tables help >$@)
$(B)/obj/tool/help_pages.o: $(B)/help_pages.c $(B)/flags
	$(call compile,CC,$(CC) $(CFLAGS_C) -Ianalysis -c -o $@ $<)
$(BUILD)/obj/fuzz/help_pages.o: $(B)/help_pages.c $(B)/flags
	$(call compile,FUZZ,clang $(CFLAGS_FUZZ) -fsanitize=fuzzer-no-link$(comma)address$(comma)undefined -c -o $@ $<)
# This object embeds the text of the harness.
$(foreach o,$(B)/obj/tool $(BUILD)/obj/fuzz,$(o)/analysis/commands/report/stage_script.o): scripts/tfharness.py
$(B)/tfanalyze: $(TOOL_OBJS)
	$(call link,LINK,$(CC) $(SANITIZE) -o $@ $(TOOL_OBJS) $(LDLIBS_TOOL))

# A unit test links the objects it needs from archives: the analyser without main(), and the library for preload_*.
$(B)/obj/tool.a: $(filter-out %/analysis/main.o,$(TOOL_OBJS))
	$(call link,AR,rm -f $@ && $(AR) qcs $@ $^)
$(B)/obj/lib.a: $(LIBTEST_OBJS)
	$(call link,AR,rm -f $@ && $(AR) qcs $@ $^)
$(B)/unit/preload_%: tests/unit/preload_%.c $(B)/obj/lib.a $(B)/obj/tool.a $(B)/flags
	$(call compile,UNIT,$(CC) $(CFLAGS_C) $(CHECK_CFLAGS) -DTFI_TEST_HOOKS -MF $@.d -Ipreload -Ianalysis -Itests -o $@ $< $(B)/obj/lib.a $(B)/obj/tool.a $(CHECK_LIBS) $(LDLIBS_TOOL) -ldl)
$(B)/unit/%: tests/unit/%.c $(B)/obj/tool.a $(B)/flags
	$(call compile,UNIT,$(CC) $(CFLAGS_C) $(CHECK_CFLAGS) -MF $@.d -Ianalysis -o $@ $< $(B)/obj/tool.a $(CHECK_LIBS) $(LDLIBS_TOOL))

# The fuzzers need clang for libFuzzer: they have their own objects of the whole analyser, with sanitizers.
CFLAGS_FUZZ = -std=gnu11 -D_GNU_SOURCE -O2 -g $(WARN) -fno-omit-frame-pointer -fno-sanitize-recover=undefined \
              -DTFI_VERSION='"$(VERSION)"' -Iinclude -Ianalysis $(NVTX_INC:%=-isystem %) -MMD -MP
$(BUILD)/obj/fuzz/%.o: %.c $(B)/flags
	$(call compile,FUZZ,clang $(CFLAGS_FUZZ) -fsanitize=fuzzer-no-link$(comma)address$(comma)undefined -c -o $@ $<)
$(BUILD)/obj/fuzz.a: $(FUZZ_OBJS)
	$(call link,AR,rm -f $@ && $(AR) qcs $@ $^)
$(BUILD)/fuzz/%: tests/fuzz/%.c $(BUILD)/obj/fuzz.a $(B)/flags
	$(call compile,FUZZ,clang $(CFLAGS_FUZZ) -fsanitize=fuzzer$(comma)address$(comma)undefined -MF $@.d -o $@ $< $(BUILD)/obj/fuzz.a $(LDLIBS_TOOL))

# A victim is linked with the victim libraries that it uses, and finds them in its own folder.
LDLIBS_VICTIM = -L$(B)/victims -Wl,--as-needed $(VICTIM_LIBS:%=-l%) -Wl,-rpath,'$$ORIGIN' -pthread -ldl
# Programs that make calls on files: a victim library with functions of the same names must not come between.
$(B)/victims/io_%: LDLIBS_VICTIM = -pthread -ldl
# The stand-in has liburing's soname: the tests run the same program with both.
$(B)/victims/liburing_standin.so: SONAME = liburing.so.2
$(B)/victims/io_uring: LDLIBS_VICTIM = $(B)/victims/liburing_standin.so
$(B)/victims/lib%.so: tests/victims/lib%.c $(B)/flags
	$(call compile,VICTIM,$(CC) $(CFLAGS_C) -MF $@.d -fPIC -shared -Wl$(comma)-soname$(comma)$(or $(SONAME),lib$*.so) -Itests -o $@ $<)
$(B)/victims/%: tests/victims/%.c $(VICTIM_LIBS:%=$(B)/victims/lib%.so) $(B)/flags
	$(call compile,VICTIM,$(CC) $(CFLAGS_C) -MF $@.d -Itests -o $@ $< $(LDLIBS_VICTIM))
$(B)/victims/%: tests/victims/%.cpp $(VICTIM_LIBS:%=$(B)/victims/lib%.so) $(B)/flags
	$(call compile,VICTIM,$(CXX) $(CFLAGS_CXX) -MF $@.d -Itests -o $@ $< $(LDLIBS_VICTIM))
$(B)/demo/%: scripts/demo/%.cpp $(B)/flags
	$(call compile,CXX,$(CXX) $(CFLAGS_CXX) -MF $@.d -o $@ $< -pthread -ldl)
$(B)/demo/%: scripts/demo/%.c $(B)/flags
	$(call compile,CC,$(CC) $(CFLAGS_C) -isystem $(CUDA_INC) -MF $@.d -o $@ $< -ldl -lm)

# The simulated GPU: libcuda.so.1 (the device model), libcudart.so.N on top of it, and programs that find both through
# LD_LIBRARY_PATH. N is the release of the headers. nvcc programs link to the toolkit's libcudart but never run with it.
SIMGPU_MAJOR  = $(shell expr $(or $(CUDA_VERSION),13000) / 1000)
SIMGPU_DRIVER := $(addprefix tests/simgpu/,base.c call.c capture.c context.c copy.c device.c engine.c graph.c graph_ids.c launch.c log.c \
                   memory.c module.c node.c pool.c proc.c script.c stream.c symbols.c tail.c virtual.c)
SIMGPU_RT     := $(wildcard tests/simgpu/rt_*.c)
SIMGPU_OBJS   := $(SIMGPU_DRIVER:%.c=$(B)/obj/simgpu/%.o)
SIMGPU_RTOBJS := $(patsubst %.c,$(B)/obj/simgpu/%.o,$(SIMGPU_RT) tests/simgpu/symbols.c)
SIMGPU_LIBS    = $(addprefix $(B)/simgpu/,libcuda.so.1 libcudart.so.$(SIMGPU_MAJOR) libcudart_static.a)
# In this mode the headers declare all ABI names, so the compiler checks every prototype.
CFLAGS_SIMGPU  = $(CFLAGS_C) -fPIC -fvisibility=hidden -D__CUDA_API_VERSION_INTERNAL -Itests/simgpu -Ipreload $(patsubst %,-isystem %,$(sort $(CUDA_INC) $(CUDART_INC)))
LDFLAGS_SIMGPU = -shared -Wl,-z,defs -Wl,--hash-style=gnu -Wl,-Bsymbolic-functions -pthread
GPU_C         := $(patsubst tests/victims_gpu/%.c,%,$(filter-out %12.c,$(wildcard tests/victims_gpu/*.c)))
GPU_CU        := $(patsubst tests/victims_gpu/%.cu,%,$(wildcard tests/victims_gpu/*.cu))
GPU_VICTIMS    = $(addprefix $(B)/victims_gpu/,$(GPU_C) $(if $(NVCC),$(if $(WERROR),,$(foreach kind,shared static per_thread,$(GPU_CU:%=%_$(kind))))))
.PHONY: simgpu clean-simgpu
clean: clean-simgpu
clean-simgpu:
	rm -rf $(addprefix $(BUILD)/,simgpu simgpu12 victims_gpu)
simgpu: $(SIMGPU_LIBS) $(GPU_VICTIMS)
everything: $(if $(ASAN),,simgpu)
$(sort $(SIMGPU_OBJS) $(SIMGPU_RTOBJS)): $(B)/obj/simgpu/%.o: %.c $(B)/flags
	$(call compile,CCGPU,$(CC) $(CFLAGS_SIMGPU) -c -o $@ $<)
$(B)/simgpu/libcuda.so.1: $(SIMGPU_OBJS) tests/simgpu/driver.map
	$(call link,LINK,$(CC) $(LDFLAGS_SIMGPU) -Wl$(comma)-soname$(comma)libcuda.so.1 -Wl$(comma)--version-script=tests/simgpu/driver.map -o $@ $(SIMGPU_OBJS))
$(B)/simgpu/cudart.map: Makefile
	$(call link,GEN,printf 'libcudart.so.%s {\nglobal:\n    cuda*;\n    __cuda*;\nlocal:\n    *;\n};\n' $(SIMGPU_MAJOR) >$@)
$(B)/simgpu/libcudart.so.$(SIMGPU_MAJOR): $(SIMGPU_RTOBJS) $(B)/simgpu/cudart.map
	$(call link,LINK,$(CC) $(LDFLAGS_SIMGPU) -Wl$(comma)-soname$(comma)$(@F) -Wl$(comma)--version-script=$(B)/simgpu/cudart.map -o $@ $(SIMGPU_RTOBJS) -ldl)
# The archive has one object, so that no weak function of rt_tail.o replaces the real one in another object.
$(B)/simgpu/libcudart_static.a: $(SIMGPU_RTOBJS)
	$(call link,AR,rm -f $@ $(@:.a=.o) && $(CC) -r -nostdlib -o $(@:.a=.o) $(filter-out %/symbols.o,$^) && $(AR) rcs $@ $(@:.a=.o))
$(B)/victims_gpu/%: tests/victims_gpu/%.c $(SIMGPU_LIBS) $(B)/flags
	$(call compile,VICTIM,$(CC) $(CFLAGS_C) $(patsubst %,-isystem %,$(sort $(CUDA_INC) $(CUDART_INC) $(CUPTI_INC))) -MF $@.d -o $@ $< -Wl$(comma)--as-needed $(B)/simgpu/libcuda.so.1 -pthread -ldl -lm)
# PyPI's packages have no libcudart.so for the linker. The simulated one has the same soname.
NVCC_SHARED = -std=c++17 -cudart shared $(if $(wildcard $(dir $(NVCC))../lib*/libcudart.so),,-L$(B)/simgpu/link)
$(B)/simgpu/link/libcudart.so: $(B)/simgpu/libcudart.so.$(SIMGPU_MAJOR)
	$(call link,LN,ln -sf ../$(<F) $@)
$(B)/victims_gpu/%_shared: tests/victims_gpu/%.cu $(B)/simgpu/link/libcudart.so $(B)/flags
	$(call link,NVCC,$(NVCC) $(NVCC_SHARED) -o $@ $<)
$(B)/victims_gpu/%_per_thread: tests/victims_gpu/%.cu $(B)/simgpu/link/libcudart.so $(B)/flags
	$(call link,NVCC,$(NVCC) $(NVCC_SHARED) -default-stream per-thread -o $@ $<)
$(B)/victims_gpu/%_static: tests/victims_gpu/%.cu $(SIMGPU_LIBS) $(B)/flags
	$(call link,NVCC,$(NVCC) -std=c++17 -cudart static -L$(B)/simgpu -o $@ $<)
-include $(SIMGPU_OBJS:.o=.d) $(SIMGPU_RTOBJS:.o=.d) $(GPU_C:%=$(B)/victims_gpu/%.d)
# ---- end of the simulated GPU ----

# The simulated CUPTI is built from the public headers, uses the simulated libcuda.so.1, and is found by LD_LIBRARY_PATH.
SIMCUPTI_SRCS = $(wildcard tests/simgpu/cupti_*.c)
SIMCUPTI_OBJS = $(patsubst tests/simgpu/%.c,$(B)/obj/simcupti/%.o,$(SIMCUPTI_SRCS))
CFLAGS_SIMCUPTI = -std=gnu11 -D_GNU_SOURCE $(OPT) $(WARN) -fPIC -fvisibility=hidden -DCUPTI_LIB -Itests/simgpu -I$(B)/obj/simcupti \
                  -isystem $(CUPTI_INC) -isystem $(CUDA_INC) -MMD -MP
$(B)/obj/simcupti/cupti_cbids.h: $(CUPTI_INC)/cupti_driver_cbid.h $(CUPTI_INC)/cupti_runtime_cbid.h $(CUPTI_INC)/cupti_result.h
	$(call link,GEN,sed -nE -e '/_(SIZE|INVALID|FORCE_INT) /d' \
	  -e 's/^ *CUPTI_(DRIVER|RUNTIME)_TRACE_CBID_(\w+) *= *([0-9]+).*/\1_CBID(\2$(comma) \3)/p' \
	  -e 's/^ *(CUPTI_(SUCCESS|ERROR_\w+)) *= *([0-9]+).*/RESULT(\1$(comma) \3)/p' $^ >$@)
$(B)/obj/simcupti/%.o: tests/simgpu/%.c $(B)/obj/simcupti/cupti_cbids.h $(B)/flags
	$(call compile,SIM,$(CC) $(CFLAGS_SIMCUPTI) -c -o $@ $<)
$(B)/obj/simcupti/%.map: tests/simgpu/cupti.map
	$(call link,GEN,sed 's/@NODE@/libcupti.so.$*/' $< >$@)
link_simcupti = $(call link,LINK,$(CC) -shared -Wl$(comma)-z$(comma)defs -Wl$(comma)-Bsymbolic -Wl$(comma)-z$(comma)nodelete -Wl$(comma)--hash-style=gnu -Wl$(comma)-soname$(comma)$(@F) -Wl$(comma)--version-script=$(filter %.map,$^) -o $@ $(SIMCUPTI_OBJS) -pthread -ldl)
$(B)/simgpu/libcupti.so.%: $(SIMCUPTI_OBJS) $(B)/obj/simcupti/%.map
	$(link_simcupti)
$(B)/victims_gpu/cupti_%: tests/victims_gpu/cupti_%.c $(B)/simgpu/libcupti.so.13 $(B)/simgpu/libcuda.so.1 $(B)/flags
	$(call compile,VICTIM,$(CC) $(CFLAGS_C) -isystem $(CUPTI_INC) -isystem $(CUDA_INC) -MF $@.d -o $@ $< $(B)/simgpu/libcupti.so.13 $(B)/simgpu/libcuda.so.1 -pthread -ldl)
SIMCUPTI = $(B)/simgpu/libcupti.so.13 $(patsubst tests/victims_gpu/%.c,$(B)/victims_gpu/%,$(wildcard tests/victims_gpu/cupti_*.c))
.PHONY: simcupti
simcupti: $(SIMCUPTI)
everything: $(if $(ASAN),,simcupti)
.SECONDARY: $(B)/obj/simcupti/13.map $(SIMCUPTI_OBJS)
-include $(SIMCUPTI_OBJS:.o=.d)
# End of the simulated CUPTI.

# The simulated NCCL: built from the public header, found by LD_LIBRARY_PATH; it finds the driver as the real one does.
SIMNCCL_OBJS = $(patsubst tests/simgpu/%.c,$(B)/obj/simnccl/%.o,$(wildcard tests/simgpu/nccl_*.c))
INC_NCCL     = $(patsubst %,-isystem %,$(sort $(NCCL_INC) $(CUDART_INC) $(CUDA_INC)))
$(B)/obj/simnccl/%.o: tests/simgpu/%.c $(B)/flags
	$(call compile,SIM,$(CC) $(CFLAGS_C) -fPIC -fvisibility=hidden -Itests/simgpu $(INC_NCCL) -c -o $@ $<)
$(B)/simgpu/libnccl.so.2 $(B)/simgpu/librccl.so.1: $(SIMNCCL_OBJS)
	$(call link,LINK,$(CC) -shared -Wl$(comma)-z$(comma)defs -Wl$(comma)-soname$(comma)$(@F) -o $@ $^ -pthread -ldl -lrt -lm)
$(B)/victims_gpu/nccl_%: tests/victims_gpu/nccl_%.c $(B)/simgpu/libnccl.so.2 $(B)/simgpu/libcuda.so.1 $(B)/flags
	$(call compile,VICTIM,$(CC) $(CFLAGS_C) $(INC_NCCL) -MF $@.d -o $@ $< $(filter %.1 %.2,$^) -pthread -ldl)
SIMNCCL = $(B)/simgpu/libnccl.so.2 $(B)/simgpu/librccl.so.1 $(patsubst tests/victims_gpu/%.c,$(B)/victims_gpu/%,$(wildcard tests/victims_gpu/nccl_*.c))
.PHONY: simnccl
simnccl: $(SIMNCCL)
everything: $(if $(ASAN),,simnccl)
.SECONDARY: $(SIMNCCL_OBJS)
-include $(SIMNCCL_OBJS:.o=.d)
# End of the simulated NCCL.

# The simulated NVML, and that of an older driver, found by LD_LIBRARY_PATH.
SIMNVML = $(B)/simgpu/libnvidia-ml.so.1 $(B)/simgpu/old/libnvidia-ml.so.1
$(B)/simgpu/old/libnvidia-ml.so.1: CPPFLAGS += -DOLD
$(SIMNVML): tests/simgpu/nvml_sim.c $(B)/flags
	$(call compile,SIM,$(CC) $(CFLAGS_C) -fPIC -fvisibility=hidden -shared -Wl$(comma)-z$(comma)defs -Wl$(comma)-soname$(comma)$(@F) -MF $@.d -o $@ $< -pthread)
.PHONY: simnvml
simnvml: $(SIMNVML)
everything: $(if $(ASAN),,simnvml)
-include $(SIMNVML:=.d)
# End of the simulated NVML.

# The simulated GPU of CUDA 12.8: driver and runtime export only the symbols that the headers of that release declare
# (`scripts/bootstrap test` fetches them). CUPTI is the same under another soname. Some programs need libcudart or libcupti 12.
SIMGPU12_FROM := $(wildcard build/nvidia/elsewhere/nvidia-cuda-runtime-cu12==12.8*/nvidia/cuda_runtime/include)
SIMGPU12_OBJS := $(SIMGPU_OBJS:$(B)/obj/simgpu/%=$(B)/obj/simgpu12/%)
SIMGPU12_RTOBJS := $(SIMGPU_RTOBJS:$(B)/obj/simgpu/%=$(B)/obj/simgpu12/%)
SIMGPU12      = $(addprefix $(B)/simgpu12/,libcuda.so.1 libcudart.so.12 libcupti.so.12 cupti_client runtime12 $(if $(NVCC),$(if $(WERROR),,runtime_shared)))
INC12         = -isystem $(SIMGPU12_FROM) -isystem $(CUDA_INC)
declared12    = $(CC) -E -P -D__CUDA_API_VERSION_INTERNAL $(INC12) -include $(1) -xc /dev/null | grep -oE '\b$(2)[A-Z]\w+' | sort -u | sed 's/$$/;/'
.PHONY: simgpu12
simgpu12: $(SIMGPU12)
everything: $(if $(ASAN),,$(if $(SIMGPU12_FROM),simgpu12))
$(B)/obj/simgpu12/%.o: %.c $(B)/flags
	$(call compile,CCGPU,$(CC) -isystem $(SIMGPU12_FROM) $(CFLAGS_SIMGPU) -c -o $@ $<)
$(B)/simgpu12/driver.map: Makefile
	$(call link,GEN,(echo '{ global: simgpu_*; cuProfiler*;'; $(call declared12,cuda.h,cu); echo 'local: *; };') >$@)
$(B)/simgpu12/cudart.map: Makefile
	$(call link,GEN,(echo 'libcudart.so.12 { global: __cuda*; cudaProfiler*; cudaGetDeviceProperties_v2;'; $(call declared12,cuda_runtime_api.h,cuda); echo 'local: *; };') >$@)
$(B)/simgpu12/libcuda.so.1: $(SIMGPU12_OBJS) $(B)/simgpu12/driver.map
	$(call link,LINK,$(CC) $(LDFLAGS_SIMGPU) -Wl$(comma)-soname$(comma)$(@F) -Wl$(comma)--version-script=$(B)/simgpu12/driver.map -o $@ $(SIMGPU12_OBJS))
$(B)/simgpu12/libcudart.so.12: $(SIMGPU12_RTOBJS) $(B)/simgpu12/cudart.map
	$(call link,LINK,$(CC) $(LDFLAGS_SIMGPU) -Wl$(comma)-soname$(comma)$(@F) -Wl$(comma)--version-script=$(B)/simgpu12/cudart.map -o $@ $(SIMGPU12_RTOBJS) -ldl)
$(B)/simgpu12/libcupti.so.12: $(SIMCUPTI_OBJS) $(B)/obj/simcupti/12.map
	$(link_simcupti)
$(B)/simgpu12/cupti_client: tests/victims_gpu/cupti_client.c $(B)/simgpu12/libcupti.so.12 $(B)/simgpu12/libcuda.so.1 $(B)/flags
	$(call compile,VICTIM,$(CC) $(CFLAGS_C) -DCUDART='"libcudart.so.12"' -isystem $(CUPTI_INC) -isystem $(CUDA_INC) -MF $@.d -o $@ $< $(filter %.12 %.1,$^) -pthread -ldl)
$(B)/simgpu12/runtime12: tests/victims_gpu/runtime12.c $(B)/simgpu12/libcudart.so.12 $(B)/flags
	$(call compile,VICTIM,$(CC) $(INC12) $(CFLAGS_C) -MF $@.d -o $@ $< $(filter %.12,$^))
$(B)/simgpu12/runtime_shared: tests/victims_gpu/runtime.cu $(B)/simgpu12/libcudart.so.12 $(B)/flags
	$(call link,NVCC,$(NVCC) -std=c++17 -cudart none -I'$(SIMGPU12_FROM)' -o $@ $< -Xlinker $(filter %.12,$^))
-include $(SIMGPU12_OBJS:.o=.d) $(SIMGPU12_RTOBJS:.o=.d) $(addprefix $(B)/simgpu12/,cupti_client.d runtime12.d)
# End of CUDA 12.

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

# Compiles with one job per processor, unless make was called with -j.
MAKE_ALL = $(MAKE) --no-print-directory $(if $(filter -j% --jobserver%,$(MAKEFLAGS)),,-j$(shell nproc)) everything
# Only a failed test keeps its directory: those of a soak would fill a disk with 40 GB.
PYTEST = PYTHONDONTWRITEBYTECODE=1 $(CURDIR)/build/venv/bin/python -m pytest -q -p no:cacheprovider -p no:anyio -o tmp_path_retention_policy=failed -n $(or $(TEST_JOBS),2) --dist loadgroup --durations=10 tests
test: ## build and check everything; the last line is `N passed, N failed, N skipped`
	@scripts/bootstrap
	$(Q)$(MAKE_ALL)
	$(Q)$(MAKE_ALL) ASAN=1
	$(Q)$(PYTEST) $(T)
check: ## build and run the tests that need no sanitizers; T='-k nvtx' selects tests, as in test and soak
	@scripts/bootstrap python
	$(Q)$(MAKE_ALL)
	$(Q)$(PYTEST) -m 'not sanitized' $(T)
check-fast: ## the same without torch, the simulated GPU and slow tests: about a minute after the build
	@scripts/bootstrap python
	$(Q)$(MAKE_ALL)
	$(Q)$(PYTEST) -n $(or $(TEST_JOBS),3) --ignore tests/gpu -m 'not (sanitized or torch or gpu or slow)' $(T)
# Each day samples other cases of the longest lists. SOAK_SEED=N repeats a sample; SOAK_ALL=1 runs every case.
SOAK_SEED ?= $(shell expr $$(date +%s) / 86400)
soak: ## run the long tests: mutations, growth, fuzzing, kills, foreign programs (about an hour; SOAK_ALL=1: all cases, hours)
	@scripts/bootstrap
	$(Q)$(MAKE_ALL)
	$(Q)$(MAKE_ALL) ASAN=1
	@echo 'soak: $(if $(SOAK_ALL),every case,the samples of SOAK_SEED=$(SOAK_SEED))'
	$(Q)SOAK_SEED=$(SOAK_SEED) SOAK_ALL=$(SOAK_ALL) $(PYTEST) -m soak $(T)
lint: ## check format, warnings of gcc and clang, cppcheck, shellcheck, tables, layers
	@scripts/bootstrap build python lint
	$(Q)scripts/lint
bench: ## measure the figures of `tfanalyze help measurements`, beside uftrace, dftracer, zlib, HTA and the TensorBoard plugin
	@scripts/bootstrap build python bench
	$(Q)$(MAKE) --no-print-directory everything
	$(Q)scripts/bench
	$(Q)scripts/bench-growth
	$(Q)scripts/bench-cuda
	$(Q)scripts/bench-kineto
	$(Q)scripts/bench-io
	$(Q)scripts/bench-memory
	$(Q)scripts/bench-torch
install: all ## install into PREFIX (/usr/local), below DESTDIR
	install -D -m 755 $(B)/libtfinject.so $(DESTDIR)$(PREFIX)/lib/libtfinject.so
	install -D -m 755 $(B)/tfanalyze $(DESTDIR)$(PREFIX)/bin/tfanalyze
	install -D -m 755 scripts/tfrun $(DESTDIR)$(PREFIX)/bin/tfrun
	install -D -m 755 scripts/tfharness.py $(DESTDIR)$(PREFIX)/bin/tfharness.py
	install -D -m 644 include/tfinject.h $(DESTDIR)$(PREFIX)/include/tfinject.h
	for page in scripts/man/*; do install -D -m 644 $$page $(DESTDIR)$(PREFIX)/share/man/man$${page##*.}/$${page##*/} || exit 1; done
compdb: ## write build/compile_commands.json, which clangd finds by itself
	$(Q)$(MAKE) --no-print-directory --always-make --dry-run --old-file=$(BUILD)/headers.mk V=1 everything fuzz | scripts/compdb >$(BUILD)/compile_commands.json
hooks: ## install git's pre-commit hook, which checks format and tables of the staged files (scripts/pre-commit)
	$(Q)scripts/pre-commit --install
clean: ## remove compiled files; build/venv and build/nvidia stay (rm -rf build removes everything)
	rm -rf $(addprefix $(BUILD)/,obj asan unit fuzz victims demo test lint flags pycache headers.mk exports.map shims.c help_pages.c compile_commands.json tfanalyze libtfinject.so)
help: ## list the targets
	@sed -nE 's/^([a-z-]+):.*## /\1\t/p' $(firstword $(MAKEFILE_LIST)) | expand -t 12
help-tests: ## list the subject of each test file
	@scripts/gen-tables tests

-include $(LIB_OBJS:.o=.d) $(LIBTEST_OBJS:.o=.d) $(TOOL_OBJS:.o=.d) $(FUZZ_OBJS:.o=.d) $(addsuffix .d,$(UNITS) $(FUZZERS) $(VICTIMS) $(DEMOS))
