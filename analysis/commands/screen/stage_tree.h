/* stage_tree.h - the stages of a run as a tree: a row for each name, with the smallest and the largest time of a rank. */
#ifndef TFA_STAGE_TREE_H
#define TFA_STAGE_TREE_H

#include "ask/stages/stage_table.h"
#include "commands/session.h"

struct needs stage_tree_needs(const struct options *options);
/* Prints at most `most` rows, those with the most time and the stages around them, below a head. Prints nothing where the
 * run has no stages. */
void stage_tree_print(struct out *out, struct session *session, size_t most);
/* The time of a stage that the tree shows, and true if it shows the stage at all. */
int64_t stage_time(const struct stage_row *row);
bool stage_in_tree(const struct stage_row *row);

#endif
