/* tracelens_breakdown.c - answers breakdown by the rules of TraceLens: of work by operator only that which an operator
 * launched counts, and it belongs to the operator of its launch, because TraceLens does not know captures.
 */
#include "commands/breakdown.h"
#include "compat/tracelens.h"

void tracelens_breakdown(struct session *session)
{
    static const struct breakdown_rules rules = {&tracelens_kind_rules, true};
    breakdown_answer(session, &rules);
}
