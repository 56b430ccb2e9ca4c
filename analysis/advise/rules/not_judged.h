/* not_judged.h - names what could not be judged. */
#ifndef TFA_NOT_JUDGED_H
#define TFA_NOT_JUDGED_H

struct judging;
void find_unjudged(struct judging *judging);

#endif
