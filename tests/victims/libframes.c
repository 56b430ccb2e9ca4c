/* libframes.c - named functions that call each other and finally the caller's function.
 *
 * Each does some work after its call, so that its frame exists during the call.
 */
#define OUT __attribute__((noinline))

OUT int frames_outer(int (*inside)(void));
OUT int frames_middle(int (*inside)(void));
OUT int frames_inner(int (*inside)(void));

int frames_inner(int (*inside)(void))
{
    return inside() + 1;
}

int frames_middle(int (*inside)(void))
{
    return frames_inner(inside) + 10;
}

int frames_outer(int (*inside)(void))
{
    return frames_middle(inside) + 100;
}
