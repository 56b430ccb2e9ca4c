/* tree_of_two.h - `diff --by tree`: what changed, by its place under stages and operators. */
#ifndef TFA_TREE_OF_TWO_H
#define TFA_TREE_OF_TWO_H

#include "commands/session.h"

/* Reads both runs and prints each place of a change once. */
void tree_of_two(struct session *session);

#endif
