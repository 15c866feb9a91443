#include "server/http.h"

#include <string.h>

/* What the next byte belongs to. */
enum {
    REQUEST_LINE,
    HEADER_LINE,
    LENGTH_BODY,
    CHUNK_LINE,
    CHUNK_BODY,
    CHUNK_END, /* the line end behind a chunk's bytes */
    TRAILER_LINE
};

enum { CHUNK_LINE_MAX = 256, KEPT_BODY = 16384 };

rvi_http rvi_http_init(const rvi_http_limits *limits)
{
    rvi_http h = {.limits = *limits};
    h.head.max = limits->head + 2; /* with the line that breaks the limit */
    h.body.max = (size_t)RVI_MIN(limits->body + 1, SIZE_MAX / 2);
    rvi_http_next(&h);
    return h;
}

void rvi_http_deinit(rvi_http *h)
{
    rvi_buf_deinit(&h->head);
    rvi_buf_deinit(&h->body);
}

void rvi_http_next(rvi_http *h)
{
    rvi_buf head = h->head, body = h->body;
    if (body.cap > KEPT_BODY || body.failed) rvi_buf_deinit(&body);
    if (head.failed) rvi_buf_deinit(&head);
    head.len = body.len = 0;
    head.max = h->limits.head + 2;
    body.max = h->body.max ? h->body.max : body.max;
    head.failed = body.failed = head.full = body.full = false;
    *h = (rvi_http){.limits = h->limits, .head = head, .body = body, .method = ""};
    h->path = h->query = h->host = h->why = "";
}

bool rvi_http_begun(const rvi_http *h)
{
    return h->any;
}

static bool fail(rvi_http *h, int status, const char *why)
{
    h->state = RVI_HTTP_BAD;
    h->status = status;
    h->why = why;
    return false;
}

/* ---- characters ---- */

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

bool rvi_http_same(const char *a, const char *b)
{
    while (*a && lower(*a) == lower(*b)) a++, b++;
    return *a == *b;
}

static bool is_token(char c)
{
    bool plain = (lower(c) >= 'a' && lower(c) <= 'z') || (c >= '0' && c <= '9');
    return plain || (c && strchr("!#$%&'*+-.^_`|~", c));
}

static int hex(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    return lower(c) >= 'a' && lower(c) <= 'f' ? lower(c) - 'a' + 10 : -1;
}

void rvi_http_unescape(char *text, bool plus)
{
    char *to = text;
    for (const char *c = text; *c; c++) {
        int high = *c == '%' ? hex(c[1]) : -1, low = high >= 0 ? hex(c[2]) : -1;
        bool escaped = low >= 0 && (high || low);
        *to++ = (char)(escaped ? high << 4 | low : plus && *c == '+' ? ' ' : *c);
        if (escaped) c += 2;
    }
    *to = 0;
}

/* ---- the request line ---- */

/* What stands at the place of the line's next blank becomes the end of a text. */
static char *cut(char **rest)
{
    char *text = *rest, *blank = strchr(text, ' ');
    if (!blank) return NULL;
    *blank = 0;
    *rest = blank + 1;
    return text;
}

/* http://host/path, which a proxy sends: the host counts as if it were the header. */
static bool cut_authority(rvi_http *h, char **target)
{
    static const char scheme[] = "http://";
    char *at = *target + strlen(scheme), *path;
    for (size_t i = 0; scheme[i]; i++)
        if (lower((*target)[i]) != scheme[i])
            return fail(h, 400, "the target must begin with '/' or http://");
    path = at + strcspn(at, "/?");
    if (path == at) return fail(h, 400, "the target names no host");
    if (*path != '/') return fail(h, 400, "the target has no path");
    memmove(at - 1, at, (size_t)(path - at)); /* makes room for the end of the host */
    h->host_at = (size_t)(at - 1 - h->head.data);
    h->has_host = true;
    path[-1] = 0;
    *target = path;
    return true;
}

static bool read_version(rvi_http *h, const char *v)
{
    bool known = !strncmp(v, "HTTP/", 5) && v[5] >= '0' && v[5] <= '9' && v[6] == '.' &&
                 v[7] >= '0' && v[7] <= '9' && !v[8];
    if (!known) return fail(h, 400, "the request line must end in an HTTP version");
    if (v[5] != '1' || v[7] > '1') return fail(h, 505, "only HTTP/1.0 and HTTP/1.1 are spoken");
    h->is_1_0 = v[7] == '0';
    h->keep_alive = !h->is_1_0;
    return true;
}

static bool read_request_line(rvi_http *h)
{
    char *rest = h->head.data + h->line_at, *method = cut(&rest), *target;
    if (!method || !(target = cut(&rest)))
        return fail(h, 400, "the request line must be a method, a target and a version");
    for (const char *c = method; *c; c++)
        if (!is_token(*c)) return fail(h, 400, "the method has a character that is not allowed");
    if (!*method || !*target) return fail(h, 400, "the request line has two blanks in a row");
    for (const char *c = target; *c; c++)
        if (*c <= ' ' || *c >= 0x7F || *c == '#') /* char is signed or not, by the CPU family */
            return fail(h, 400, "the target has a character that is not allowed");
    if (!read_version(h, rest)) return false;
    bool all = !strcmp(target, "*") && !strcmp(method, "OPTIONS");
    if (*target != '/' && !all && !cut_authority(h, &target)) return false;
    char *mark = strchr(target, '?');
    if (mark) *mark = 0;
    h->method_at = (size_t)(method - h->head.data);
    h->path_at = (size_t)(target - h->head.data);
    h->has_query = mark;
    if (mark) h->query_at = (size_t)(mark + 1 - h->head.data);
    return true;
}

/* ---- headers ---- */

static bool check_header(rvi_http *h, const char *line, size_t len, size_t *colon)
{
    *colon = 0;
    if (*line == ' ' || *line == '\t') return fail(h, 400, "a header line is folded");
    while (*colon < len && is_token(line[*colon])) ++*colon;
    if (!*colon || line[*colon] != ':')
        return fail(h, 400, "a header must be a name, a colon and a value");
    return true;
}

static bool read_header(rvi_http *h)
{
    char *line = h->head.data + h->line_at;
    size_t len = h->head.len - h->line_at - 1, colon;
    if (!check_header(h, line, len, &colon)) return false;
    if (h->n_headers == RVI_HTTP_HEADERS) return fail(h, 431, "there are more than 100 headers");
    size_t from = colon + 1, end = len;
    while (from < end && (line[from] == ' ' || line[from] == '\t')) from++;
    while (end > from && (line[end - 1] == ' ' || line[end - 1] == '\t')) end--;
    line[colon] = line[end] = 0;
    h->headers[h->n_headers++] =
        (rvi_http_header){(uint32_t)h->line_at, (uint32_t)colon, (uint32_t)(h->line_at + from),
                          (uint32_t)(end - from)};
    return true;
}

static int count(const rvi_http *h, const char *name)
{
    int n = 0;
    for (int i = 0; i < h->n_headers; i++)
        n += rvi_http_same(h->head.data + h->headers[i].name, name);
    return n;
}

const char *rvi_http_header_get(const rvi_http *h, const char *name)
{
    for (int i = 0; i < h->n_headers; i++)
        if (rvi_http_same(h->head.data + h->headers[i].name, name))
            return h->head.data + h->headers[i].value;
    return NULL;
}

/* Is word among the words of all headers of this name? */
static bool lists(const rvi_http *h, const char *name, const char *word)
{
    size_t len = strlen(word);
    for (int i = 0; i < h->n_headers; i++) {
        const char *at = h->head.data + h->headers[i].value;
        if (!rvi_http_same(h->head.data + h->headers[i].name, name)) continue;
        while (*at) {
            at += strspn(at, " \t,");
            size_t n = strcspn(at, " \t,"), same = 0;
            while (same < n && same < len && lower(at[same]) == word[same]) same++;
            if (n == len && same == len) return true;
            at += n;
        }
    }
    return false;
}

static bool read_length(rvi_http *h, const char *text)
{
    h->left = 0;
    for (const char *c = text; *c; c++) {
        if (*c < '0' || *c > '9') return fail(h, 400, "Content-Length must be a number");
        if (h->left > (UINT64_MAX - 9) / 10) return fail(h, 413, "the body is too large");
        h->left = h->left * 10 + (uint64_t)(*c - '0');
    }
    if (!*text) return fail(h, 400, "Content-Length must be a number");
    if (h->left > h->limits.body) return fail(h, 413, "the body is too large");
    return true;
}

static bool read_host(rvi_http *h)
{
    int n = count(h, "host");
    if (n > 1) return fail(h, 400, "there are two Host headers");
    if (!n && !h->is_1_0) return fail(h, 400, "the Host header is missing");
    if (n && !h->has_host) {
        h->host_at = (size_t)(rvi_http_header_get(h, "host") - h->head.data);
        h->has_host = true;
    }
    return true;
}

/* How the body is told from what follows. */
static bool read_framing(rvi_http *h)
{
    const char *length = rvi_http_header_get(h, "content-length");
    const char *coding = rvi_http_header_get(h, "transfer-encoding");
    if (count(h, "content-length") > 1) return fail(h, 400, "there are two Content-Length headers");
    if (count(h, "transfer-encoding") > 1)
        return fail(h, 400, "there are two Transfer-Encoding headers");
    if (length && coding)
        return fail(h, 400, "a request has Content-Length or Transfer-Encoding, not both");
    if (coding && h->is_1_0) return fail(h, 400, "HTTP/1.0 has no Transfer-Encoding");
    if (coding && !rvi_http_same(coding, "chunked"))
        return fail(h, 400, "the only Transfer-Encoding taken is chunked");
    if (length && !read_length(h, length)) return false;
    h->part = coding ? CHUNK_LINE : LENGTH_BODY;
    h->state = coding || h->left ? RVI_HTTP_BODY : RVI_HTTP_WHOLE;
    return true;
}

/* The buffer may have moved when it grew. */
static void place_texts(rvi_http *h)
{
    const char *head = h->head.data;
    h->method = head + h->method_at;
    h->path = head + h->path_at;
    h->query = h->has_query ? head + h->query_at : "";
    h->host = h->has_host ? head + h->host_at : "";
}

static bool read_head_end(rvi_http *h)
{
    const char *expect = rvi_http_header_get(h, "expect");
    place_texts(h); /* also for the answer to what is refused below */
    if (!read_host(h) || !read_framing(h)) return false;
    if (lists(h, "connection", "close"))
        h->keep_alive = false;
    else if (lists(h, "connection", "keep-alive"))
        h->keep_alive = true;
    if (expect && !rvi_http_same(expect, "100-continue"))
        return fail(h, 417, "the only expectation known is 100-continue");
    h->expects_continue = expect && !h->is_1_0 && h->state == RVI_HTTP_BODY;
    place_texts(h);
    return true;
}

/* ---- chunks ---- */

static bool read_chunk_line(rvi_http *h)
{
    const char *line = h->head.data + h->line_at;
    int n = 0;
    h->left = 0;
    for (; hex(line[n]) >= 0; n++) {
        if (h->left >> 59) return fail(h, 413, "the body is too large");
        h->left = h->left << 4 | (uint64_t)hex(line[n]);
    }
    const char *rest = line + n + strspn(line + n, " \t");
    if (!n || (*rest && *rest != ';') || (*rest != ';' && rest != line + n))
        return fail(h, 400, "the size of a chunk must be a hexadecimal number");
    if (h->left > h->limits.body - h->body.len) return fail(h, 413, "the body is too large");
    h->part = h->left ? CHUNK_BODY : TRAILER_LINE;
    return true;
}

/* ---- lines ---- */

static bool take_line(rvi_http *h)
{
    size_t colon, len = h->head.len - h->line_at - 1; /* the last byte is the line's 0 */
    const char *line = h->head.data + h->line_at;
    bool keep = false;
    switch (h->part) {
    case REQUEST_LINE:
        if (!len && h->line_at) return fail(h, 400, "the request begins with empty lines");
        if (len && !read_request_line(h)) return false;
        if (len) h->part = HEADER_LINE;
        keep = true; /* an empty line before a request is passed over, once */
        break;
    case HEADER_LINE:
        if (len ? !read_header(h) : !read_head_end(h)) return false;
        keep = true;
        break;
    case CHUNK_LINE:
        if (!read_chunk_line(h)) return false;
        break;
    case CHUNK_END:
        if (len) return fail(h, 400, "a chunk is longer than its size");
        h->part = CHUNK_LINE;
        break;
    default: /* trailers are checked and dropped */
        if (len && !check_header(h, line, len, &colon)) return false;
        if (!len) h->state = RVI_HTTP_WHOLE;
        keep = true; /* counts for the limit of the head */
    }
    if (keep)
        h->line_at = h->head.len;
    else
        h->head.len = h->line_at;
    return true;
}

static bool check_line_room(rvi_http *h)
{
    size_t len = h->head.len - h->line_at;
    if (h->part == REQUEST_LINE && len > h->limits.line)
        return fail(h, 414, "the request line is too long");
    if ((h->part == CHUNK_LINE || h->part == CHUNK_END) && len > CHUNK_LINE_MAX)
        return fail(h, 400, "the line of a chunk's size is too long");
    if (h->head.len > h->limits.head) return fail(h, 431, "the headers are too long");
    return true;
}

static bool take_line_byte(rvi_http *h, char c)
{
    if (h->after_cr != (c == '\n'))
        return fail(h, 400, "a line must end in CR and LF, which stand nowhere else");
    h->after_cr = c == '\r';
    if (h->after_cr) return true;
    unsigned char u = (unsigned char)c;
    if ((u < ' ' && c != '\t' && c != '\n') || u == 0x7F)
        return fail(h, 400, "there is a control character in a line");
    if (!rvi_buf_putc(&h->head, c == '\n' ? 0 : c))
        return h->head.full ? fail(h, 431, "the headers are too long")
                            : fail(h, 503, "out of memory");
    if (h->state == RVI_HTTP_BODY) place_texts(h);
    return check_line_room(h) && (c != '\n' || take_line(h));
}

static size_t take_body(rvi_http *h, const char *bytes, size_t n)
{
    n = (size_t)RVI_MIN((uint64_t)n, h->left);
    if (!rvi_buf_append(&h->body, bytes, n)) {
        fail(h, 503, "out of memory");
        return 0;
    }
    h->left -= n;
    if (!h->left && h->part == LENGTH_BODY) h->state = RVI_HTTP_WHOLE;
    if (!h->left && h->part == CHUNK_BODY) h->part = CHUNK_END;
    return n;
}

size_t rvi_http_feed(rvi_http *h, const char *bytes, size_t n)
{
    size_t used = 0;
    while (used < n && h->state < RVI_HTTP_WHOLE) {
        h->any = true;
        if (h->part == LENGTH_BODY || h->part == CHUNK_BODY) {
            used += take_body(h, bytes + used, n - used);
        } else {
            used++;
            (void)take_line_byte(h, bytes[used - 1]);
        }
    }
    return used;
}

const char *rvi_http_reason(int status)
{
    static const struct {
        int status;
        const char *reason;
    } list[] = {{200, "OK"},
                {204, "No Content"},
                {400, "Bad Request"},
                {401, "Unauthorized"},
                {403, "Forbidden"},
                {404, "Not Found"},
                {405, "Method Not Allowed"},
                {408, "Request Timeout"},
                {409, "Conflict"},
                {413, "Content Too Large"},
                {414, "URI Too Long"},
                {417, "Expectation Failed"},
                {421, "Misdirected Request"},
                {429, "Too Many Requests"},
                {431, "Request Header Fields Too Large"},
                {500, "Internal Server Error"},
                {501, "Not Implemented"},
                {503, "Service Unavailable"},
                {504, "Gateway Timeout"},
                {505, "HTTP Version Not Supported"}};
    for (size_t i = 0; i < RVI_COUNT(list); i++)
        if (list[i].status == status) return list[i].reason;
    return "Unknown";
}
