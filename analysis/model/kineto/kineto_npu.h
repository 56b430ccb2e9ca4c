/* kineto_npu.h - joins the tasks of an Ascend NPU to the operators that torch_npu's arrows come from. */
#ifndef TFA_LOAD_KINETO_NPU_H
#define TFA_LOAD_KINETO_NPU_H

#include "model/model.h"
#include "read/kineto.h"

/* Tasks, and both ends of the arrows with the category async_npu. */
struct npu_tasks {
    struct npu_end {
        enum npu_what { NPU_TASK, NPU_LAUNCH, NPU_ARRIVAL } what;
        uint64_t id;  /* of the arrow */
        uint64_t row; /* of a launch: the thread; else a hash of pid and tid */
        int64_t time;
        uint32_t work; /* of a task */
    } * end;
    size_t count, capacity;
};

bool is_npu_task(struct slice category);
void npu_take_task(struct npu_tasks *tasks, const struct kineto_event *event, size_t work);
/* Adds an end of an arrow; `thread` is that of a launch. */
void npu_take_arrow(struct npu_tasks *tasks, const struct kineto_event *event, uint32_t thread);
/* Gives each task the external id of the operator at which its arrow begins, and an operator without an id a new one. */
void npu_conclude(struct npu_tasks *tasks, struct process *process);
void npu_free(struct npu_tasks *tasks);

#endif
