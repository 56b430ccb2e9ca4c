/* libdftracer_standin.c - stands in for dftracer's library: exports its C and C++ interface and says each call.
 *
 * The C++ names are those of dftracer 1.0.5, 1.0.11 and 2. As in dftracer, a region of the C interface is an object of
 * the C++ interface. A region is a number, and the calls say which.
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
    static long regions;
    printf("initialize_region %s %s %d\n", name, cat, type);
    say_c1();
    return (void *)(++regions * 100);
}

void finalize_region(void *data)
{
    printf("finalize_region %ld\n", (long)data);
    say_end();
    say_d1();
}

void finalize_region_cleanup(void **data)
{
    printf("finalize_region_cleanup %ld\n", (long)*data);
    finalize_region(*data);
}

void update_metadata_int(void *data, const char *key, int value)
{
    printf("update_metadata_int %ld %s %d\n", (long)data, key, value);
    say_update_int();
}

void update_metadata_int_type(void *data, const char *key, int value, int type)
{
    printf("update_metadata_int_type %ld %s %d %d\n", (long)data, key, value, type);
}

void update_metadata_string(void *data, const char *key, const char *value)
{
    printf("update_metadata_string %ld %s %s\n", (long)data, key, value);
}

void update_metadata_string_type(void *data, const char *key, const char *value, int type)
{
    printf("update_metadata_string_type %ld %s %s %d\n", (long)data, key, value, type);
}
