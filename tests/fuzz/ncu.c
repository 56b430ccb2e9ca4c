/* ncu.c - feeds arbitrary bytes to the reader of Nsight Compute's CSV, and judges what it finds. */
#include <math.h>
#include <string.h>

#include "ask/ncu/ncu_kernels.h"
#include "ask/ncu/ncu_names.h"
#include "fuzz.h"

static void check_launch(const struct ncu_launch *launch)
{
    require(launch->kernel && launch->launches > 0, "a launch has a kernel");
    for (int i = 0; i < NR_NCU_METRICS; i++) require(!isinf(launch->metric[i]), "a number is finite or unknown");
    require(!launch->stall || !isnan(launch->stall_value), "a reason to wait has a number");
}

static void check_kernel(const struct ncu_kernel *kernel)
{
    struct text facts = {0};
    const char *nearer;
    unsigned known = 0;
    for (int i = 0; i < NR_NCU_METRICS; i++) known += !isnan(kernel->metric[i]);
    enum ncu_bound bound = ncu_judge(kernel, &facts, &nearer);
    require(facts.length > 0, "every answer has a reason");
    require(bound == BOUND_UNKNOWN || known + (kernel->first->stall != NULL) >= 2, "no single number decides");
    text_free(&facts);
}

/* Every kernel is found among the kernels themselves. */
static void check_names(const struct ncu_launches *launches)
{
    struct names names;
    struct ncu_matcher matcher;
    uint32_t *name = mem_zero(launches->count, sizeof *name), found;
    names_init(&names);
    for (size_t i = 0; i < launches->count; i++)
        name[i] = names_add(&names, launches->launch[i].kernel, strlen(launches->launch[i].kernel));
    ncu_matcher_init(&matcher, &names, name, launches->count);
    for (size_t i = 0; i < launches->count; i++)
        require(ncu_match(&matcher, launches->launch[i].kernel, &found) == MATCHED_NAME,
                "a kernel is found by its name");
    ncu_matcher_free(&matcher);
    names_free(&names);
    free(name);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct ncu_launches launches = {0};
    struct ncu_kernels kernels;
    struct notes notes = {0};
    uint64_t of_kernels = 0, of_launches = 0;
    bool usable = ncu_read_bytes((const char *)bytes, size, &launches, &notes);
    require(usable == !notes_have(&notes, UNUSABLE), "an unusable file gives a note");
    require(usable == (launches.count > 0), "a usable file has launches");
    for (size_t i = 0; i < launches.count; i++) check_launch(&launches.launch[i]);
    ncu_kernels_of(&kernels, &launches);
    for (size_t i = 0; i < kernels.count; i++) check_kernel(&kernels.kernel[i]);
    for (size_t i = 0; i < kernels.count; i++) of_kernels += kernels.kernel[i].launches;
    for (size_t i = 0; i < launches.count; i++) of_launches += launches.launch[i].launches;
    require(of_kernels == of_launches, "every launch is in one kernel");
    check_names(&launches);
    ncu_kernels_free(&kernels);
    ncu_launches_free(&launches);
    notes_free(&notes);
    return 0;
}
