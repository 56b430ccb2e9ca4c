/* libdftracer_standin.c - stands in for dftracer's library: exports its C and C++ interface and says each call.
 *
 * The C++ names are those of dftracer 1.0.5, 1.0.11 and 2. With the profiler in front of it none of them is called.
 */
#include <stdio.h>

#define SAY(name, symbol)                                                                                              \
    __attribute__((visibility("default"))) void name(void) __asm__(#symbol);                                           \
    void name(void)                                                                                                    \
    {                                                                                                                  \
        puts(#symbol);                                                                                                 \
    }

SAY(say_main, initialize_main)
SAY(say_no_bind, initialize_no_bind)
SAY(say_finalize, finalize)
SAY(say_used, mark_used)
SAY(say_app_int, set_app_metadata_int)
SAY(say_app_string, set_app_metadata_string)
SAY(say_finalize_region, finalize_region)
SAY(say_cleanup, finalize_region_cleanup)
SAY(say_int, update_metadata_int)
SAY(say_int_type, update_metadata_int_type)
SAY(say_string, update_metadata_string)
SAY(say_string_type, update_metadata_string_type)
SAY(say_c1_5, _ZN8DFTracerC1EPKcS1_)
SAY(say_c1_11, _ZN8DFTracerC1EPKcS1_i)
SAY(say_c1, _ZN8DFTracerC1EPKcS1_i14TraceEventType)
SAY(say_c2, _ZN8DFTracerC2EPKcS1_i14TraceEventType)
SAY(say_d1, _ZN8DFTracerD1Ev)
SAY(say_d2, _ZN8DFTracerD2Ev)
SAY(say_end, _ZN8DFTracer8finalizeEv)
SAY(say_update_int_11, _ZN8DFTracer6updateEPKci)
SAY(say_update_11, _ZN8DFTracer6updateEPKcS1_)
SAY(say_update_int, _ZN8DFTracer6updateEPKci12MetadataType)
SAY(say_update, _ZN8DFTracer6updateEPKcS1_12MetadataType)

void *initialize_region(const char *name, const char *cat, int type)
{
    (void)name;
    (void)cat;
    (void)type;
    puts("initialize_region");
    return NULL;
}
