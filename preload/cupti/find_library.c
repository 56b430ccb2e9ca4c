/* find_library.c - chooses the CUPTI library and finds its functions.
 *
 * Order. A CUPTI that is mapped already is the one that the program's own profiler uses, and a second copy does not
 * work beside it. Next comes TFI_CUPTI_PATH; then the place that belongs to the mapped CUDA runtime: beside it, in
 * the same Python environment, in the same toolkit. A program with a runtime linked in may have other libraries of
 * NVIDIA; then these are looked beside. Then come the loader's path, the Python environment, and the toolkit of
 * CUDA_HOME, CUDA_PATH or /usr/local/cuda. The major version is the runtime's, or the driver's if there is no runtime.
 *
 * If Nsight profiles the process, the device is taken: our CUPTI would fail, or spoil Nsight's records. Nsight's
 * libraries are mapped by then, or the first call of NVTX or the driver will map them; the environment announces
 * that. Nothing is loaded in this case, and the driver is not called.
 */
#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fmt.h"
#include "base/raw_dlsym.h"
#include "control/config.h"
#include "cupti/client.h"
#include "record/log.h"

#define OLDEST 18u /* CUDA 12.0, with kernel records of 208 bytes; 11.8 has the same number, and records of 200 bytes */

struct tfi_cupti_api tfi_cupti_api;

/* The mapped libraries. */
struct seen {
    char cupti[2][512]; /* path by major version, 12 and 13 */
    char old[512];      /* path of a CUPTI of CUDA 11 */
    char runtime[512];
    char library[512];  /* another library of a toolkit */
    char packages[512]; /* folder of Python's packages, with the slash */
    unsigned runtime_major;
    const char *tool;
};

/* Reads the numbers behind ".so." in a file's name; the second is 0 if there is none. */
static void version_of(const char *file, unsigned version[2])
{
    const char *at = strstr(file, ".so.");
    version[0] = version[1] = 0;
    if (!at) return;
    for (unsigned i = 0; i < 2; i++) {
        for (at += i ? 1 : 4; *at >= '0' && *at <= '9'; at++) version[i] = version[i] * 10 + (unsigned)(*at - '0');
        if (*at != '.') return;
    }
}

static unsigned major_of(const char *file)
{
    unsigned version[2];
    version_of(file, version);
    return version[0];
}

/* Release of CUDA that a CUPTI belongs to. Its files are named by that, or by year and number: CUDA 11.8 has
 * libcupti.so.2022.3, 12.0 has 2022.4, 12.9 has 2025.2, and 13.0 has 2025.3. */
static unsigned release_of(const char *file)
{
    unsigned version[2];
    version_of(file, version);
    if (version[0] < 2000) return version[0] ? version[0] : 13;
    if (version[0] < 2022 || (version[0] == 2022 && version[1] < 4)) return 11;
    return version[0] < 2025 || (version[0] == 2025 && version[1] < 3) ? 12 : 13;
}

static bool named(const char *file, const char *library)
{
    size_t length = strlen(library);
    return strncmp(file, library, length) == 0 && (strncmp(file + length, ".so", 3) == 0 || file[length] == '-');
}

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static const char *file_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Matches the libraries that nsys and ncu load into a process. */
static const char *tool_of(const char *file)
{
    static const char *const tools[] = {"libToolsInjection", "libcuda-injection", "libInterceptorInjection",
                                        "libTreeLauncherTargetInjection"};
    for (size_t i = 0; i < TFI_COUNT(tools); i++)
        if (begins(file, tools[i])) return tools[i];
    return NULL;
}

/* Returns the variable by which a profiler of the device has announced itself. Other NVTX tools do not touch the
 * device. A library other than ours that the driver is told to load is there for the device. */
static const char *announced(void)
{
    static const char *const variables[] = {"NSYS_PROFILING_SESSION_ID", "NV_NSIGHT_INJECTION_",
                                            "QUADD_INJECTION_PROXY"};
    const char *path = getenv("CUDA_INJECTION64_PATH");
    if (path && *path && !begins(file_of(path), "libtfinject")) return "CUDA_INJECTION64_PATH";
    path = getenv("NVTX_INJECTION64_PATH");
    if (path && tool_of(file_of(path))) return "NVTX_INJECTION64_PATH";
    for (char **e = environ; e && *e; e++)
        for (size_t i = 0; i < TFI_COUNT(variables); i++)
            if (begins(*e, variables[i])) return variables[i];
    return NULL;
}

/* Matches the libraries of a toolkit that a program may have without a shared runtime. */
static bool is_of_toolkit(const char *file)
{
    static const char *const libraries[] = {"libcublas", "libcublasLt", "libnvrtc",    "libnvJitLink", "libcudnn",
                                            "libcufft",  "libcurand",   "libcusolver", "libcusparse",  "libnccl"};
    for (size_t i = 0; i < TFI_COUNT(libraries); i++)
        if (named(file, libraries[i])) return true;
    return false;
}

static void look_for_packages(struct seen *seen, const char *path)
{
    static const char end[] = "-packages/"; /* site-packages, dist-packages */
    const char *at = *seen->packages ? NULL : strstr(path, end);
    size_t length = at ? (size_t)(at - path) + sizeof end - 1 : 0;
    if (!length || length >= sizeof seen->packages) return;
    memcpy(seen->packages, path, length);
    seen->packages[length] = 0;
}

static int look_for_cupti(struct dl_phdr_info *info, size_t size, void *data)
{
    struct seen *seen = data;
    const char *path = info->dlpi_name ? info->dlpi_name : "", *file = file_of(path);
    (void)size;
    if (named(file, "libcupti")) {
        unsigned release = release_of(file);
        char *to = release < 12 ? seen->old : seen->cupti[release > 12];
        if (!*to) tfi_fmt(to, sizeof seen->cupti[0], "%s", path);
    } else if (named(file, "libcudart") && (!*seen->runtime || seen->runtime_major < 12)) {
        tfi_fmt(seen->runtime, sizeof seen->runtime, "%s", path);
        seen->runtime_major = major_of(file);
    } else if (is_of_toolkit(file) && !*seen->library) {
        tfi_fmt(seen->library, sizeof seen->library, "%s", path);
    }
    look_for_packages(seen, path);
    if (tool_of(file)) seen->tool = tool_of(file);
    return 0;
}

static bool open_one(void **handle, const char *path, int flags)
{
    *handle = dlopen(path, RTLD_LAZY | flags);
    if (!*handle) dlerror(); /* the program would take the error for one of its own */
    if (*handle) tfi_fmt(tfi_cupti_api.path, sizeof tfi_cupti_api.path, "%s", path);
    return *handle != NULL;
}

/* Searches places below the folder that `path` begins with, which takes `length` bytes. */
static bool open_below(void **handle, const char *path, size_t length, const char *const *places, unsigned major)
{
    char file[1024];
    for (; *places; places++) {
        memcpy(file, path, length);
        tfi_fmt(file + length, sizeof file - length, "%slibcupti.so.%u", *places, major);
        if (open_one(handle, file, 0)) return true;
    }
    return false;
}

/* Searches the places that belong to a library of CUDA. */
static bool open_near(void **handle, const char *library, unsigned major)
{
    static const char *const places[] = {"/",
                                         "/../../cuda_cupti/lib/",
                                         "/../../cu13/lib/",
                                         "/../../cu12/lib/",
                                         "/../extras/CUPTI/lib64/",
                                         "/../../extras/CUPTI/lib64/",
                                         NULL};
    const char *slash = strrchr(library, '/');
    return slash && open_below(handle, library, (size_t)(slash - library), places, major);
}

/* Searches the packages of NVIDIA and Triton, and the libraries of the Python environment. */
static bool open_in_packages(void **handle, const char *packages, unsigned major)
{
    static const char *const places[] = {"nvidia/cu13/lib/", "nvidia/cuda_cupti/lib/",
                                         "triton/backends/nvidia/lib/cupti/", "../../", NULL};
    return *packages && open_below(handle, packages, strlen(packages), places, major);
}

static bool open_in_toolkit(void **handle, unsigned major)
{
    static const char *const places[] = {"/extras/CUPTI/lib64/", "/lib64/", "/targets/x86_64-linux/lib/", NULL};
    const char *home = getenv("CUDA_HOME"), *path = getenv("CUDA_PATH");
    const char *roots[] = {home, path, home || path ? NULL : "/usr/local/cuda"};
    for (size_t i = 0; i < TFI_COUNT(roots); i++) {
        size_t length = roots[i] ? strnlen(roots[i], 512) : 0;
        if (length && length < 512 && open_below(handle, roots[i], length, places, major)) return true;
    }
    return false;
}

static void *open_library(const struct seen *seen)
{
    void *handle = NULL;
    char name[32];
    unsigned major = seen->runtime_major;
    /* A program that profiles itself would see our call of the driver; it has one CUPTI to choose from. */
    if (major != 12 && major != 13 && !*seen->cupti[0] != !*seen->cupti[1]) major = *seen->cupti[0] ? 12 : 13;
    if (major != 12 && major != 13) major = tfi_cupti_driver_version() / 1000 == 12 ? 12 : 13;
    for (unsigned i = 0; i < 2; i++) {
        const char *mapped = seen->cupti[(major - 12 + i) % 2];
        if (*mapped && open_one(&handle, mapped, RTLD_NOLOAD)) return handle;
    }
    if (tfi_config.cupti_path) {
        if (open_one(&handle, tfi_config.cupti_path, 0)) return handle;
        tfi_log(TFI_LOG_WARN, "TFI_CUPTI_PATH=%s cannot be opened; the search for CUPTI continues elsewhere",
                tfi_config.cupti_path);
    }
    for (unsigned i = 0; i < 2; i++, major = 25 - major) {
        if (open_near(&handle, seen->runtime, major) || open_near(&handle, seen->library, major)) return handle;
        tfi_fmt(name, sizeof name, "libcupti.so.%u", major);
        if (open_one(&handle, name, 0) || open_in_packages(&handle, seen->packages, major)) return handle;
        if (open_in_toolkit(&handle, major)) return handle;
    }
    return NULL;
}

/* True for functions that some releases lack. */
static bool can_lack(const char *name)
{
    static const char *const names[] = {"ActivityEnableRuntimeApi", "ActivityEnableDriverApi", "GetResultString",
                                        "GetCallbackName"};
    for (unsigned i = 0; i < TFI_COUNT(names); i++)
        if (strcmp(name, names[i]) == 0) return true;
    return false;
}

static const char *missing_function(void *handle)
{
    struct tfi_cupti_api *api = &tfi_cupti_api;
#define API(name, params) api->name = (int(*) params)tfi_dlsym(handle, "cupti" #name);
    TFI_CUPTI_FUNCTIONS
#undef API
    /* These two came with 12.5; without them the whole kinds are enabled. */
    if (!api->ActivityEnableRuntimeApi || !api->ActivityEnableDriverApi)
        api->ActivityEnableRuntimeApi = api->ActivityEnableDriverApi = NULL;
#define API(name, params)                                                                                              \
    if (!api->name && !can_lack(#name)) return "cupti" #name;
    TFI_CUPTI_FUNCTIONS
#undef API
    return NULL;
}

const char *tfi_cupti_error(int result)
{
    const char *text = NULL;
    if (tfi_cupti_api.GetResultString) tfi_cupti_api.GetResultString(result, &text);
    return text ? text : "an error without a name";
}

bool tfi_cupti_profiler(char *text, size_t size)
{
    struct seen seen = {.tool = NULL};
    dl_iterate_phdr(look_for_cupti, &seen);
    const char *variable = seen.tool ? NULL : announced();
    if (!seen.tool && !variable) return false;
    tfi_fmt(text, size, "%s %s", variable ? "variable" : "library", variable ? variable : seen.tool);
    return true;
}

/* ---- the driver ---- */

enum { NOT_INITIALIZED = 3 };

/* Loads the driver only if the runtime is about to: the program's call comes next and does the same. */
enum tfi_cupti_driver tfi_cupti_driver(bool runtime)
{
    int count, result;
    void *handle = dlopen("libcuda.so.1", RTLD_LAZY | (runtime ? 0 : RTLD_NOLOAD));
    if (!handle) {
        dlerror(); /* the program would take the error for one of its own */
        tfi_log(TFI_LOG_INFO, "no device records: libcuda.so.1 was not found");
        return TFI_CUPTI_DRIVER_NONE;
    }
    int (*init)(unsigned) = (int (*)(unsigned))tfi_dlsym(handle, "cuInit");
    int (*devices)(int *) = (int (*)(int *))tfi_dlsym(handle, "cuDeviceGetCount");
    if (!init || !devices) return TFI_CUPTI_DRIVER_NONE;
    if (!runtime && devices(&count) == NOT_INITIALIZED) return TFI_CUPTI_DRIVER_NOT_YET;
    result = init(0);
    if (result == 0) return TFI_CUPTI_DRIVER_WORKS;
    tfi_log(TFI_LOG_INFO, "no device records: cuInit failed with error %d", result);
    return TFI_CUPTI_DRIVER_NONE;
}

bool tfi_cupti_driver_is_loaded(void)
{
    void *handle = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (handle) dlclose(handle);
    else dlerror(); /* the program would take the error for one of its own */
    return handle != NULL;
}

/* True if NVIDIA's kernel driver is there: of a desktop or server, of WSL, or of the embedded boards. */
static bool kernel_driver(void)
{
    struct stat st;
    static const char *const paths[] = {
        "/dev/nvidiactl", "/proc/driver/nvidia/version", "/dev/dxg", "/dev/nvgpu", "/dev/nvhost-gpu", "/dev/nvmap"};
    for (size_t i = 0; i < TFI_COUNT(paths); i++)
        if (tfi_stat(paths[i], &st) == 0) return true;
    return false;
}

/* True if CUPTI fits the driver. NVIDIA's CUPTI uses undocumented ways into the driver, and crashes if that is not
 * NVIDIA's: a translation to other hardware, or the simulated driver. No call without that risk tells whether the
 * two fit. NVIDIA's CUPTI is therefore used only with NVIDIA's kernel driver. Simulated libraries, which declare
 * themselves by a symbol of their own, are used only with each other. */
static bool fits(void *cupti)
{
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    bool simulated = tfi_dlsym(cupti, "simgpu_cupti") != NULL;
    bool driver_simulated = driver && tfi_dlsym(driver, "simgpu_now");
    if (driver) dlclose(driver);
    if (simulated == driver_simulated && (simulated || kernel_driver())) return true;
    tfi_log(TFI_LOG_WARN, "no device records: %s does not fit the driver, which is %s; stages are still recorded",
            tfi_cupti_api.path, driver_simulated ? "simulated" : "not NVIDIA's");
    return false;
}

/* The library's own name for itself, "" if it has none: its file may be called libcupti.so. */
static const char *soname_of(void *handle)
{
    struct link_map *map = NULL;
    const char *strings = NULL;
    if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0) return "";
    for (const ElfW(Dyn) *d = map->l_ld; d->d_tag != DT_NULL; d++)
        if (d->d_tag == DT_STRTAB) strings = (const char *)d->d_un.d_ptr;
    if (!strings || (uintptr_t)strings < map->l_addr) return "";
    for (const ElfW(Dyn) *d = map->l_ld; d->d_tag != DT_NULL; d++)
        if (d->d_tag == DT_SONAME) return strings + d->d_un.d_val;
    return "";
}

/* Says that CUDA 11 is not supported. Its calls are recorded all the same. */
static bool is_too_old(const char *path)
{
    tfi_log(TFI_LOG_WARN, "no device records: %s is too old, CUDA 12 or newer is needed; stages are still recorded",
            path);
    return true;
}

bool tfi_cupti_find(void)
{
    struct seen seen = {.tool = NULL};
    struct tfi_cupti_api *api = &tfi_cupti_api;
    dl_iterate_phdr(look_for_cupti, &seen);
    if (*seen.old && is_too_old(seen.old)) return false;
    if (seen.runtime_major && seen.runtime_major < 12 && is_too_old(seen.runtime)) return false;
    void *handle = open_library(&seen);
    if (!handle) {
        tfi_log(
            TFI_LOG_WARN,
            "no device records: libcupti.so was not found; set TFI_CUPTI_PATH to its path. Stages are still recorded");
        return false;
    }
    if (!fits(handle)) return false;
    const char *missing = missing_function(handle);
    if (missing) {
        tfi_log(TFI_LOG_WARN, "no device records: %s lacks the function %s; stages are still recorded", api->path,
                missing);
        return false;
    }
    int result = api->GetVersion(&api->version);
    if (result != 0 || api->version < OLDEST || release_of(soname_of(handle)) < 12) return !is_too_old(api->path);
    tfi_log(TFI_LOG_INFO, "CUPTI version %u was loaded from %s", api->version, api->path);
    return true;
}
