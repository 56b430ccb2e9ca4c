/* inflate.c - unpacks a .gz file and discards the bytes: the least time that any reader of the file needs.
 *
 * It uses zlib in process with buffers of 1 MB, and reads all members of the file. Prints the number of bytes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <zlib.h>

enum { SIZE = 1 << 20 };

int main(int argc, char **argv)
{
    static unsigned char in[SIZE], out[SIZE];
    z_stream stream = {0};
    unsigned long long bytes = 0;
    FILE *file = argc == 2 ? fopen(argv[1], "rb") : NULL;
    if (!file || inflateInit2(&stream, 15 + 32) != Z_OK) {
        fprintf(stderr, "usage: inflate FILE.gz\n");
        return 2;
    }
    while ((stream.avail_in = (unsigned)fread(in, 1, SIZE, file)) > 0) {
        stream.next_in = in;
        do {
            stream.next_out = out;
            stream.avail_out = SIZE;
            int state = inflate(&stream, Z_NO_FLUSH);
            bytes += SIZE - stream.avail_out;
            if (state == Z_STREAM_END) {
                inflateReset(&stream);
            } else if (state != Z_OK && state != Z_BUF_ERROR) {
                fprintf(stderr, "inflate: %s: damaged\n", argv[1]);
                return 1;
            }
        } while (stream.avail_in || !stream.avail_out);
    }
    printf("%llu\n", bytes);
    inflateEnd(&stream);
    return fclose(file) ? 1 : 0;
}
