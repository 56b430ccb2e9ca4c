/* libversion.c - preloaded, makes any shared CPython one of a version that nobody has seen yet. */
const char *Py_GetVersion(void);

const char *Py_GetVersion(void)
{
    return "3.99.0 (unknown)";
}
