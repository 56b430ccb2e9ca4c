/* plugin.h - NCCL's profiler plugin: which algorithm, protocol and channels NCCL chose (TFI_NCCL_PLUGIN). */
#ifndef TFI_NCCL_PLUGIN_H
#define TFI_NCCL_PLUGIN_H

#include <stdbool.h>

/* Asks NCCL to load the plugin, if TFI_NCCL_PLUGIN=1 and the user has chosen no other. Called in the constructor. */
void tfi_nccl_plugin_constructor(void);

/* Says once that the plugin stays off although it was asked for. Called at the process's first call of NCCL. */
void tfi_nccl_plugin_note(void);

/* Decides a look-up of the plugin's symbols by name. While the plugin is off, they are hidden from NCCL: true, and
 * `*found` is the definition behind ours, or NULL. */
bool tfi_nccl_plugin_hides(void *handle, const char *name, void **found);

#endif
