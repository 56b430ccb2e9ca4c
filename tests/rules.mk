# rules.mk - the Makefile's part for what the tests need: test library, unit tests, fuzzers, victims, simulated GPUs.
UNIT_SRCS    := $(wildcard tests/unit/*.c)
VICTIM_LIBS  := $(patsubst tests/victims/lib%.c,%,$(wildcard tests/victims/lib*.c))
VICTIM_SRCS  := $(filter-out tests/victims/lib%,$(wildcard tests/victims/*.c tests/victims/*.cpp))
FUZZ_SRCS    := $(wildcard tests/fuzz/*.c)

# The test library is the product's objects, but for those whose source depends on TFI_TEST_HOOKS, itself or by hooks.def.
TEST_SRCS    := $(shell grep -lE 'TFI_TEST_HOOKS|TFI_NR_HOOKS|"hooks\.def"' $(PRELOAD_SRCS)) tests/dummy.c
TEST_OBJS    := $(TEST_SRCS:%.c=$(B)/obj/libtest/%.o)
LIBTEST_OBJS := $(filter-out $(TEST_SRCS:%.c=$(B)/obj/lib/%.o),$(LIB_OBJS)) $(TEST_OBJS)
UNITS        := $(patsubst tests/unit/%.c,$(B)/unit/%,$(if $(ASAN),$(filter-out tests/unit/preload_%,$(UNIT_SRCS)),$(UNIT_SRCS)))
VICTIMS      := $(VICTIM_LIBS:%=$(B)/victims/lib%.so) $(patsubst tests/victims/%,$(B)/victims/%,$(basename $(VICTIM_SRCS)))
FUZZ_OBJS    := $(patsubst %.c,$(BUILD)/obj/fuzz/%.o,$(TOOL_SRCS) $(SHARED_SRCS) help_pages.c page_text.c)
FUZZERS      := $(FUZZ_SRCS:tests/fuzz/%.c=$(BUILD)/fuzz/%)
CHECK_CFLAGS  = $(shell pkg-config --cflags check)
CHECK_LIBS    = $(shell pkg-config --libs check)

.PHONY: units fuzz victims
everything: units $(if $(ASAN),,$(B)/test/libtfinject.so victims $(DEMOS))
units: $(UNITS)
fuzz: $(FUZZERS)
victims: $(VICTIMS)

# The library of the tests has the hooks of tests/dummy.def too.
# What only the tests use is compiled in less time. A private variable does not reach $(B)/flags.
$(foreach sim,simgpu simgpu12 simcupti simnccl,$(B)/obj/$(sim)/%.o) $(B)/unit/%: private OPT = $(if $(ASAN),-Og,-O1) -g1
$(B)/obj/libtest/%.o: %.c $(B)/flags
	$(call compile,CCTEST,$(CC) $(CFLAGS_LIB) -DTFI_TEST_HOOKS -Itests -c -o $@ $<)
$(B)/test/exports.map: $(TABLES) tests/dummy.def
	$(call link,GEN,$(PYTHON) scripts/gen-tables exports --test >$@)
$(B)/test/libtfinject.so: $(LIBTEST_OBJS) $(B)/test/exports.map
	$(call link,LINK,$(CC) $(LDFLAGS_LIB) $(LDFLAGS_CUDA) -Wl$(comma)--version-script=$(B)/test/exports.map -o $@ $(LIBTEST_OBJS) $(LDLIBS_LIB))

# A unit test links the objects it needs from archives: the analyser without main(), and the library for preload_*.
$(B)/obj/tool.a: $(filter-out %/analysis/main.o,$(TOOL_OBJS))
	$(call link,AR,rm -f $@ && $(AR) qcs $@ $^)
$(B)/obj/lib.a: $(LIBTEST_OBJS)
	$(call link,AR,rm -f $@ && $(AR) qcs $@ $^)
$(B)/unit/preload_%: tests/unit/preload_%.c $(B)/obj/lib.a $(B)/obj/tool.a $(B)/flags
	$(call compile,UNIT,$(CC) $(CFLAGS_C) $(CHECK_CFLAGS) -DTFI_TEST_HOOKS -MF $@.d -Ipreload -Ianalysis -Itests -o $@ $< $(B)/obj/lib.a $(B)/obj/tool.a $(CHECK_LIBS) $(LDLIBS_TOOL) -ldl)
# The same source with libstdc++'s old layout of std::string and with its new one.
$(B)/unit/strings_%.so: tests/unit/strings.cpp $(B)/flags
	$(call compile,CXX,$(CXX) -std=c++17 $(BASE) -D_GLIBCXX_USE_CXX11_ABI=$(if $(filter old,$*),0,1) -fPIC -shared -MF $@.d -o $@ $<)
$(B)/unit/preload_cxx: | $(B)/unit/strings_old.so $(B)/unit/strings_new.so
$(B)/unit/analysis_once: private LDLIBS_TOOL += -Wl,--wrap=attribute
$(B)/unit/analysis_guard: private LDLIBS_TOOL += -Wl,--wrap=guard_tables
$(B)/unit/analysis_live: private LDLIBS_TOOL += -Wl,--wrap=pread
$(B)/unit/%: tests/unit/%.c $(B)/obj/tool.a $(B)/flags
	$(call compile,UNIT,$(CC) $(CFLAGS_C) $(CHECK_CFLAGS) -MF $@.d -Ianalysis -o $@ $< $(B)/obj/tool.a $(CHECK_LIBS) $(LDLIBS_TOOL))

# The fuzzers need clang for libFuzzer: they have their own objects of the whole analyser, with sanitizers.
CFLAGS_FUZZ = -std=gnu11 -D_GNU_SOURCE -O2 -g $(WARN) -fno-omit-frame-pointer -fno-sanitize-recover=undefined \
              -DTFI_VERSION='"$(VERSION)"' -DTFI_TOOL -include include/glibc.h -Iinclude -Ianalysis $(NVTX_INC:%=-isystem %) -MMD -MP
$(BUILD)/obj/fuzz/%.o: %.c $(B)/flags
	$(call compile,FUZZ,clang $(CFLAGS_FUZZ) -fsanitize=fuzzer-no-link$(comma)address$(comma)undefined -c -o $@ $<)
# main.c has the table of the commands, and libFuzzer its own main.
$(BUILD)/obj/fuzz/analysis/main.o: CFLAGS_FUZZ += -Dmain=tfanalyze_main
$(BUILD)/obj/fuzz.a: $(FUZZ_OBJS)
	$(call link,AR,rm -f $@ && $(AR) qcs $@ $^)
$(BUILD)/fuzz/%: tests/fuzz/%.c $(BUILD)/obj/fuzz.a $(B)/flags
	$(call compile,FUZZ,clang $(CFLAGS_FUZZ) -fsanitize=fuzzer$(comma)address$(comma)undefined -MF $@.d -o $@ $< $(BUILD)/obj/fuzz.a $(LDLIBS_TOOL))

# A victim is linked with the victim libraries that it uses, and finds them in its own folder. Three libraries replace
# functions of libc: only LD_PRELOAD loads them.
LDLIBS_VICTIM = -L$(B)/victims -Wl,--as-needed $(patsubst %,-l%,$(filter-out adversary kill_opening inside,$(VICTIM_LIBS))) -Wl,-rpath,'$$ORIGIN' -pthread -ldl
# Programs that make calls on files: a victim library with functions of the same names must not come between.
$(B)/victims/io_%: LDLIBS_VICTIM = -pthread -ldl
$(B)/victims/lib%.so: tests/victims/lib%.c $(B)/flags
	$(call compile,VICTIM,$(CC) $(CFLAGS_C) -MF $@.d -fPIC -shared -Wl$(comma)-soname$(comma)$(or $(SONAME),lib$*.so) -Itests -o $@ $<)
$(B)/victims/%: tests/victims/%.c $(VICTIM_LIBS:%=$(B)/victims/lib%.so) $(B)/flags
	$(call compile,VICTIM,$(CC) $(CFLAGS_C) -MF $@.d -Itests -o $@ $< $(LDLIBS_VICTIM))
$(B)/victims/%: tests/victims/%.cpp $(VICTIM_LIBS:%=$(B)/victims/lib%.so) $(B)/flags
	$(call compile,VICTIM,$(CXX) $(CFLAGS_CXX) -MF $@.d -Itests -o $@ $< $(LDLIBS_VICTIM))
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
.PHONY: simgpu
simgpu: $(SIMGPU_LIBS) $(GPU_VICTIMS)
everything: $(if $(ASAN),,simgpu)
$(sort $(SIMGPU_OBJS) $(SIMGPU_RTOBJS)): $(B)/obj/simgpu/%.o: %.c $(B)/flags
	$(call compile,CCGPU,$(CC) $(CFLAGS_SIMGPU) -c -o $@ $<)
$(B)/simgpu/libcuda.so.1: $(SIMGPU_OBJS) tests/simgpu/driver.map
	$(call link,LINK,$(CC) $(LDFLAGS_SIMGPU) -Wl$(comma)-soname$(comma)libcuda.so.1 -Wl$(comma)--version-script=tests/simgpu/driver.map -o $@ $(SIMGPU_OBJS))
$(B)/simgpu/cudart.map: tests/rules.mk
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

# A stand-in for the functions of cuBLAS that torch calls; it is preloaded.
$(B)/simgpu/libsimblas.so: tests/simgpu/blas.c $(B)/flags
	$(call compile,SIM,$(CC) $(CFLAGS_C) -fPIC -fvisibility=hidden -shared -Wl$(comma)-z$(comma)defs -MF $@.d -o $@ $< -ldl)
everything: $(if $(ASAN),,$(B)/simgpu/libsimblas.so)
-include $(B)/simgpu/libsimblas.so.d

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
$(B)/simgpu12/driver.map: tests/rules.mk
	$(call link,GEN,(echo '{ global: simgpu_*; cuProfiler*;'; $(call declared12,cuda.h,cu); echo 'local: *; };') >$@)
$(B)/simgpu12/cudart.map: tests/rules.mk
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
-include $(TEST_OBJS:.o=.d) $(FUZZ_OBJS:.o=.d) $(addsuffix .d,$(UNITS) $(FUZZERS) $(VICTIMS))
