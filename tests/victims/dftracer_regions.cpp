/* dftracer_regions.cpp - marks regions as dftracer's macros do, in C and in C++ of all generations.
 *
 * dftracer_regions many: 600 regions are open at once, and one has more arguments than a slot holds.
 */
#include <pthread.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

enum TraceEventType { CPP_APP = 9 };
enum MetadataType { MT_KEY };

class DFTracer
{
    int event_type;
    bool initialized;
    const char *name, *cat;
    long type, start_time;
    void *metadata;

  public:
    DFTracer(const char *name, const char *cat);
    DFTracer(const char *name, const char *cat, int event_type);
    DFTracer(const char *name, const char *cat, int event_type, TraceEventType type);
    void update(const char *key, int value);
    void update(const char *key, const char *value);
    void update(const char *key, int value, MetadataType type);
    void update(const char *key, const char *value, MetadataType type);
    void finalize();
    ~DFTracer();
};

extern "C" {
struct DFTracerData;
void initialize_main(const char *log_file, const char *data_dirs, int *process_id);
void set_app_metadata_int(const char *key, int value);
void set_app_metadata_string(const char *key, const char *value);
void mark_used(const char *name);
void finalize(void);
struct DFTracerData *initialize_region(const char *name, const char *cat, int event_type);
void finalize_region(struct DFTracerData *data);
void finalize_region_cleanup(struct DFTracerData **data);
void update_metadata_int(struct DFTracerData *data, const char *key, int value);
void update_metadata_string(struct DFTracerData *data, const char *key, const char *value);
void update_metadata_int_type(struct DFTracerData *data, const char *key, int value, int type);
void update_metadata_string_type(struct DFTracerData *data, const char *key, const char *value, int type);
}

static void *other_thread(void *data)
{
    finalize_region((struct DFTracerData *)data);
    return NULL;
}

static void in_c(void)
{
    struct DFTracerData *outer = initialize_region("outer", "C_APP", 0),
                        *inner = initialize_region("inner", "C_APP", 0);
    update_metadata_int(inner, "number", -7);
    update_metadata_string(inner, "text", "a \"b\" \xff");
    update_metadata_int_type(inner, "typed", 8, 1);
    update_metadata_string_type(inner, "more", "x", 1);
    finalize_region(inner);
    {
        struct DFTracerData *scope __attribute__((cleanup(finalize_region_cleanup))) =
            initialize_region("scope", "C_APP", 0);
        (void)scope;
    }
    finalize_region(initialize_region("key", "value", 1));
    finalize_region(outer);
    pthread_t thread;
    pthread_create(&thread, NULL, other_thread, initialize_region("elsewhere", "C_APP", 0));
    pthread_join(thread, NULL);
}

static void in_cpp(void)
{
    DFTracer newest("newest", "CPP_APP", 0, CPP_APP);
    newest.update("n", 1, MT_KEY);
    newest.update("t", "two", MT_KEY);
    DFTracer *middle = new DFTracer("middle", "CPP_APP", 0);
    middle->update("n", 3);
    delete middle;
    DFTracer oldest("oldest", "CPP_APP");
    oldest.update("t", "four");
    oldest.finalize();
    oldest.finalize();
    DFTracer fact("from", "cpp", 1, CPP_APP);
}

static void many(void)
{
    static struct DFTracerData *open[600];
    char key[40];
    struct DFTracerData *full = initialize_region("full", "C_APP", 0);
    for (int i = 0; i < 100; i++) {
        snprintf(key, sizeof key, "an argument with number %d", i);
        update_metadata_int(full, key, i);
    }
    finalize_region(full);
    for (int i = 0; i < 600; i++) open[i] = initialize_region("many", "C_APP", 0);
    for (int i = 0; i < 600; i++) finalize_region(open[i]);
}

int main(int argc, char **argv)
{
    int process_id = 3;
    (void)argv;
    initialize_main("log", "data", &process_id);
    mark_used("C_APP");
    set_app_metadata_int("nodes", 2);
    set_app_metadata_string("model", "small");
    errno = 77;
    in_c();
    in_cpp();
    if (argc > 1) many();
    printf("errno %d\n", errno);
    finalize();
    return 0;
}
