/* html.c - writes the head of a page, and texts that are safe in HTML. */
#include "write/html/html.h"

#include <string.h>

/* No script runs and nothing is loaded, whatever a name in a trace contains. */
static const char head[] =
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
    "<style>\n"
    ":root { color-scheme: light dark; --page: #ffffff; --text: #1b1b1b; --soft: #5c5c5c; --rule: #d5d5d5;\n"
    " --c0: #1b7837; --c1: #c98a00; --c2: #222222; --c3: #9467bd; --c4: #d62728; --c5: #1f4fb4; --c6: #56a3d9;\n"
    " --c7: #9a9a9a; }\n"
    "@media (prefers-color-scheme: dark) { :root { --page: #16181c; --text: #e8e8e8; --soft: #a8a8a8;\n"
    " --rule: #3c4048; --c0: #4caf68; --c1: #e0ac2b; --c2: #f0f0f0; --c3: #b493d6; --c4: #ef5b52; --c5: #5b85e8;\n"
    " --c6: #84c4ef; --c7: #7d828b; } }\n"
    "body { background: var(--page); color: var(--text); font: 15px/1.45 system-ui, sans-serif; margin: 1.5em auto;\n"
    " max-width: 68em; padding: 0 1em; }\n"
    "h1 { font-size: 1.4em; } h2 { font-size: 1.1em; margin: 2em 0 .3em; overflow-wrap: anywhere; }\n"
    "p { margin: .3em 0; overflow-wrap: anywhere; } .soft { color: var(--soft); }\n"
    "svg { width: 100%; height: auto; } svg text { fill: var(--soft); font: 12px system-ui, sans-serif; }\n"
    "table { border-collapse: collapse; margin: .6em 0; } th, td { padding: .15em .8em; text-align: right; }\n"
    "th { color: var(--soft); font-weight: 600; } th:first-child, td:first-child { text-align: left; }\n"
    "tr { border-bottom: 1px solid var(--rule); } td { font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }\n"
    ".key { border-radius: 2px; display: inline-block; height: .8em; margin-right: .5em; width: .8em; }\n"
    ".rule { stroke: var(--rule); } .mark { stroke: var(--text); stroke-dasharray: 3 3; }\n"
    ".line { fill: none; stroke: var(--text); stroke-width: 1.2; }\n"
    ".b0 { background: var(--c0); fill: var(--c0); } .b1 { background: var(--c1); fill: var(--c1); }\n"
    ".b2 { background: var(--c2); fill: var(--c2); } .b3 { background: var(--c3); fill: var(--c3); }\n"
    ".b4 { background: var(--c4); fill: var(--c4); } .b5 { background: var(--c5); fill: var(--c5); }\n"
    ".b6 { background: var(--c6); fill: var(--c6); } .b7 { background: var(--c7); fill: var(--c7); }\n"
    "</style>\n";

static const char *entity(char c)
{
    switch (c) {
    case '&': return "&amp;";
    case '<': return "&lt;";
    case '>': return "&gt;";
    case '"': return "&quot;";
    case '\'': return "&#39;";
    default: return NULL;
    }
}

void html_text(struct out *out, const char *bytes, size_t length)
{
    struct text text = {0};
    text_visible(&text, bytes, length);
    for (size_t i = 0, from = 0; i <= text.length; i++) {
        const char *instead = i < text.length ? entity(text.data[i]) : "";
        if (!instead) continue;
        out_write(out, text.data + from, i - from);
        out_puts(out, instead);
        from = i + 1;
    }
    text_free(&text);
}

void html_string(struct out *out, const char *string)
{
    html_text(out, string, strlen(string));
}

void html_begin(struct out *out, const char *title)
{
    out_puts(out, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>");
    html_string(out, title);
    out_puts(out, "</title>\n");
    out_puts(out, head);
    out_puts(out, "</head>\n<body>\n<h1>");
    html_string(out, title);
    out_puts(out, "</h1>\n");
}

void html_end(struct out *out)
{
    out_puts(out, "</body>\n</html>\n");
}
