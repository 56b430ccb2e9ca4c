/* export_kineto.h - gives the events of a Kineto trace to the outputs of an export, unchanged but for the rows of overlapping
 * work.
 *
 * The model determines the stage of each event. The file is then read a second time: the n-th event of a table
 * (kineto_table) is the n-th row of the model's table. So an output has every value of an event, including those
 * that the model drops, and one reading serves any number of outputs.
 */
#ifndef TFA_EXPORT_KINETO_H
#define TFA_EXPORT_KINETO_H

#include "write/export/targets.h"

/* An export needs these. */
extern const struct needs export_kineto_needs;

/* Returns false if the file can't be read again. */
bool export_kineto(struct targets *targets, const struct selection *chosen, struct notes *notes);

#endif
