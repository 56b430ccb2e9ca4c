/* state.c - state shared by all files of cupti/: the page with the client's state, and the owner of the device.
 *
 * The page belongs to the process, and a forked child finds it empty (tfinject.c). Before the constructor has run,
 * zeros here stand for it.
 */
#include "cupti/client.h"

struct tfi_cupti tfi_cupti_asleep;
struct tfi_cupti *tfi_cupti = &tfi_cupti_asleep;
uint32_t tfi_cupti_hes;
uint32_t tfi_cupti_away;
