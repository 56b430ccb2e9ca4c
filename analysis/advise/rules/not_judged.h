/* not_judged.h - names what could not be judged. */
#ifndef TFA_NOT_JUDGED_H
#define TFA_NOT_JUDGED_H

struct rule_facts;
void find_unjudged(struct rule_facts *rule_facts);

#endif
