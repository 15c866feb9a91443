/* The files of src/server/page, taken into the program by the assembler as they are. */
#include "server/page.h"

/* The names are known to this file alone; the Makefile knows that it depends on the files. */
#define EMBED(name, file)                                                                          \
    __asm__(".pushsection .rodata\n" #name ":\n.incbin \"src/server/page/" file "\"\n" #name       \
            "_end:\n.popsection\n");                                                               \
    extern const char name[] __attribute__((visibility("hidden")));                                \
    extern const char name##_end[] __attribute__((visibility("hidden")))

EMBED(document, "index.html");
EMBED(style, "page.css");
EMBED(script, "page.js");

/* Nothing from elsewhere, nothing inline, no frame around it: text that a model writes stays text
 * even where the script should err. */
static void reply(rvi_conn *c, const char *type, const char *first, const char *end)
{
    rvi_buf_puts(&c->headers, "content-security-policy: default-src 'none'; script-src 'self'; "
                              "style-src 'self'; connect-src 'self'; img-src data:; "
                              "base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n"
                              "referrer-policy: no-referrer\r\ncache-control: no-cache\r\n");
    rvi_conn_reply(c, 200, type, first, (size_t)(end - first));
}

void rvi_page_document(rvi_serving *s, rvi_conn *c)
{
    (void)s;
    reply(c, "text/html; charset=utf-8", document, document_end);
}

void rvi_page_style(rvi_serving *s, rvi_conn *c)
{
    (void)s;
    reply(c, "text/css; charset=utf-8", style, style_end);
}

void rvi_page_script(rvi_serving *s, rvi_conn *c)
{
    (void)s;
    reply(c, "text/javascript; charset=utf-8", script, script_end);
}
