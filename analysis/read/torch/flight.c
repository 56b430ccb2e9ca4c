/* flight.c - opens a dump of the flight recorder, and tells pickles from JSON. */
#include "read/torch/flight.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "read/torch/pickle_in.h"
#include "read/torch/pickle_machine.h"

enum { HEAD = 4096, LARGEST = 64 << 20 /* bytes: the recorder keeps some thousand collectives */ };

/* The keys of the JSON form are sorted, so that its first one is in the head. */
static bool is_json(const char *bytes, size_t length)
{
    return length && bytes[0] == '{' &&
           (memmem(bytes, length, "\"comm_lib_version\"", 18) || memmem(bytes, length, "\"nccl_comm_state\"", 17));
}

bool is_flight_file(const char *path, enum file_how how)
{
    char head[HEAD];
    struct stat status;
    const char *why = NULL;
    int fd = file_open(path, how, &status, &why);
    ssize_t length = fd < 0 ? -1 : file_read(fd, head, sizeof head);
    if (fd >= 0) close(fd);
    return length > 0 && (is_pickle(head, (size_t)length) || is_json(head, (size_t)length));
}

json_t *flight_parse(const char *bytes, size_t length, char **why)
{
    json_error_t error;
    json_t *value;
    *why = NULL;
    if (is_pickle(bytes, length)) {
        value = pickle_read((const unsigned char *)bytes, length, why);
    } else {
        value = json_loadb(bytes, length, 0, &error);
        if (!value) *why = string_format("is not valid JSON at byte %d: %s", error.position, error.text);
    }
    if (!value || json_is_array(json_object_get(value, "entries"))) return value;
    *why = string_format("is no dump of PyTorch's flight recorder: it has no list of entries");
    json_decref(value);
    return NULL;
}

json_t *flight_read(const char *path, enum file_how how, char **why)
{
    struct stat status;
    const char *reason = NULL;
    json_t *value = NULL;
    char *bytes = NULL;
    int fd = file_open(path, how, &status, &reason);
    *why = NULL;
    if (fd < 0) {
        *why = string_format("cannot be read (%s)", reason);
        goto out;
    }
    if (status.st_size > LARGEST) {
        *why = string_format("has %lld bytes: a dump of the flight recorder has at most %d", (long long)status.st_size,
                             LARGEST);
        goto out;
    }
    bytes = mem_resize(NULL, (size_t)status.st_size + 1, 1);
    ssize_t length = file_read(fd, bytes, (size_t)status.st_size);
    if (length < 0) *why = string_format("cannot be read (%s)", strerror(errno));
    else value = flight_parse(bytes, (size_t)length, why);
out:
    free(bytes);
    if (fd >= 0) close(fd);
    return value;
}
