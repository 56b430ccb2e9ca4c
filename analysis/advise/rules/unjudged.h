/* unjudged.h - names what could not be judged. */
#ifndef TFA_UNJUDGED_H
#define TFA_UNJUDGED_H

struct judging;
void find_unjudged(struct judging *judging);

#endif
