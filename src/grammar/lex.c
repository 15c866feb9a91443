#include "grammar/lex.h"

#include <string.h>

enum { MAX_STATES = 1 << 19, MAX_ROWS = 1 << 16 };

/* What was read of a character: which way, how many digits or bytes are still to come, and the
 * value so far. */
typedef enum way {
    NOTHING,
    BACKSLASH,
    HEX,    /* \u: digits to come, value */
    HIGH,   /* \uD83D: its ten bits; a backslash is to come */
    HIGH_U, /* ... then a u */
    LOW,    /* ... then digits: bits 0-11 the value so far, 12-21 the high ten bits */
    UTF8_2, /* bytes to come, value */
    UTF8_3,
    UTF8_4,
} way;

static uint32_t pend(way w, uint32_t left, uint32_t value)
{
    return (uint32_t)w | left << 4 | value << 8;
}

bool rvi_lexer_init(rvi_lexer *l, rvi_rxs *rxs)
{
    *l = (rvi_lexer){.rxs = rxs, .n_states = RVI_LEX_FIRST, .cap_states = 64, .table_mask = 127};
    l->states = rvi_zalloc_array(l->cap_states, sizeof *l->states);
    l->table = rvi_zalloc_array(l->table_mask + 1, sizeof *l->table);
    if (l->states && l->table) return true;
    rvi_lexer_deinit(l);
    return false;
}

void rvi_lexer_deinit(rvi_lexer *l)
{
    rvi_free(l->states);
    rvi_free(l->table);
    rvi_free(l->rows);
    *l = (rvi_lexer){0};
}

static uint32_t hash_state(const rvi_lex_state *s)
{
    uint32_t h = (s->rx * 2 + s->mode) * 0x9E3779B1u ^ s->pending * 0x85EBCA77u;
    return (h ^ h >> 15) * 0xC2B2AE3Du;
}

static uint32_t nomem(rvi_lexer *l)
{
    rvi_rxs_fail(l->rxs, RV_E_NOMEM, "");
    return RVI_LEX_DEAD;
}

static bool make_room(rvi_lexer *l)
{
    if (l->n_states == l->cap_states) {
        if (l->n_states >= MAX_STATES) {
            rvi_rxs_fail(l->rxs, RV_E_TOO_LONG, "the grammar needs too many states");
            return false;
        }
        void *more = rvi_realloc_array(l->states, l->cap_states * 2, sizeof *l->states);
        if (!more) return nomem(l), false;
        l->states = more;
        l->cap_states *= 2;
    }
    if (l->n_states * 2 <= l->table_mask) return true;
    uint32_t mask = l->table_mask * 2 + 1, *table = rvi_zalloc_array(mask + 1, sizeof *table);
    if (!table) return nomem(l), false;
    rvi_free(l->table);
    l->table = table;
    l->table_mask = mask;
    for (uint32_t i = RVI_LEX_FIRST; i < l->n_states; i++) {
        uint32_t at = hash_state(&l->states[i]) >> 3 & mask;
        while (table[at]) at = (at + 1) & mask;
        table[at] = i;
    }
    return true;
}

static uint32_t intern(rvi_lexer *l, rvi_rx rx, uint32_t pending, uint32_t mode)
{
    rvi_lex_state s = {.rx = rx, .pending = pending, .mode = mode};
    if (rx == RVI_RX_NONE || l->rxs->status || !make_room(l)) return RVI_LEX_DEAD;
    uint32_t at = hash_state(&s) >> 3 & l->table_mask;
    for (; l->table[at]; at = (at + 1) & l->table_mask) {
        const rvi_lex_state *x = &l->states[l->table[at]];
        if (x->rx == rx && x->pending == pending && x->mode == mode) return l->table[at];
    }
    l->states[l->n_states] = s;
    return l->table[at] = l->n_states++;
}

uint32_t rvi_lex_start(rvi_lexer *l, rvi_rx rx, rvi_lex_mode mode)
{
    return rvi_rx_live(l->rxs, rx) || rvi_rx_nullable(l->rxs, rx) ? intern(l, rx, 0, mode)
                                                                  : RVI_LEX_DEAD;
}

uint32_t rvi_lex_with(rvi_lexer *l, uint32_t state, rvi_rx rx)
{
    return intern(l, rx, l->states[state].pending, l->states[state].mode);
}

bool rvi_lex_ends(const rvi_lexer *l, uint32_t state)
{
    return !l->states[state].pending && rvi_rx_nullable(l->rxs, l->states[state].rx);
}

/* ---- steps ---- */

typedef struct walk {
    rvi_lexer *l;
    rvi_lex_state s;
    uint32_t *cp;
} walk;

static uint32_t complete(walk *w, uint32_t cp)
{
    if (w->cp) *w->cp = cp;
    return intern(w->l, rvi_rx_next(w->l->rxs, w->s.rx, cp), 0, w->s.mode);
}

static uint32_t wait(walk *w, uint32_t pending, uint32_t first, uint32_t last)
{
    return rvi_rx_any(w->l->rxs, w->s.rx, first, last) ? intern(w->l, w->s.rx, pending, w->s.mode)
                                                       : RVI_LEX_DEAD;
}

/* A character of n bytes of which `left` are to come. */
static uint32_t wait_utf8(walk *w, way kind, uint32_t left, uint32_t value)
{
    static const uint32_t least[] = {0x80, 0x800, 0x10000}, most[] = {0x7FF, 0xFFFF, 0x10FFFF};
    uint32_t first = value << (6 * left), last = ((value + 1) << (6 * left)) - 1;
    first = RVI_MAX(first, least[kind - UTF8_2]);
    last = RVI_MIN(last, most[kind - UTF8_2]);
    if (first > last || (first >= 0xD800 && last <= 0xDFFF)) return RVI_LEX_DEAD;
    return wait(w, pend(kind, left, value), first, last);
}

static uint32_t wait_escape(walk *w)
{
    uint32_t pending = pend(BACKSLASH, 0, 0), next;
    if (!w->l->canonical) return wait(w, pending, 0, RVI_RX_LAST);
    if ((next = wait(w, pending, 0, 0x1F)) || (next = wait(w, pending, '"', '"'))) return next;
    return wait(w, pending, '\\', '\\');
}

static uint32_t begin(walk *w, uint8_t b)
{
    bool string = w->s.mode == RVI_LEX_STRING;
    if (string && b == '"')
        return rvi_rx_nullable(w->l->rxs, w->s.rx) ? RVI_LEX_EXIT : RVI_LEX_DEAD;
    if (string && b == '\\') return wait_escape(w);
    if (string && b < 0x20) return RVI_LEX_DEAD;
    if (b < 0x80) return complete(w, b);
    if (b >= 0xC2 && b <= 0xDF) return wait_utf8(w, UTF8_2, 1, b & 0x1Fu);
    if (b >= 0xE0 && b <= 0xEF) return wait_utf8(w, UTF8_3, 2, b & 0x0Fu);
    if (b >= 0xF0 && b <= 0xF4) return wait_utf8(w, UTF8_4, 3, b & 0x07u);
    return RVI_LEX_DEAD;
}

static int hex(uint8_t c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

static uint32_t escaped(walk *w, uint8_t b)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *at = b ? strchr(from, b) : NULL;
    if (w->l->canonical) {
        if (b == '/') return RVI_LEX_DEAD;
        if (b == 'u') return wait(w, pend(HEX, 4, 0), 0, 0x1F);
    }
    if (at) return complete(w, (uint32_t)to[at - from]);
    return b == 'u' ? wait(w, pend(HEX, 4, 0), 0, RVI_RX_LAST) : RVI_LEX_DEAD;
}

static uint32_t hex_digit(walk *w, uint32_t left, uint32_t value, int d)
{
    if (d < 0) return RVI_LEX_DEAD;
    value = value << 4 | (uint32_t)d;
    if (w->l->canonical && value << (4 * (left - 1)) > 0x1F) return RVI_LEX_DEAD;
    if (--left) { /* one character of the basic plane, or half of a pair */
        uint32_t first = value << (4 * left), last = ((value + 1) << (4 * left)) - 1;
        uint32_t high = RVI_MAX(first, 0xD800u), high_last = RVI_MIN(last, 0xDBFFu);
        if (w->l->canonical) last = RVI_MIN(last, 0x1Fu);
        bool pair = first >= 0xD800 && last <= 0xDFFF;
        if ((!pair && rvi_rx_any(w->l->rxs, w->s.rx, first, last)) ||
            (high <= high_last && rvi_rx_any(w->l->rxs, w->s.rx, 0x10000 + ((high - 0xD800) << 10),
                                             0x10000 + ((high_last - 0xD800) << 10) + 0x3FF)))
            return intern(w->l, w->s.rx, pend(HEX, left, value), w->s.mode);
        return RVI_LEX_DEAD;
    }
    if (value < 0xD800 || value > 0xDFFF) return complete(w, value);
    if (value > 0xDBFF) return RVI_LEX_DEAD;
    uint32_t first = 0x10000 + ((value - 0xD800) << 10);
    return wait(w, pend(HIGH, 0, value - 0xD800), first, first + 0x3FF);
}

static uint32_t low_digit(walk *w, uint32_t left, uint32_t value, int d)
{
    if (d < 0) return RVI_LEX_DEAD;
    uint32_t top = value >> 12, low = (value & 0xFFF) << 4 | (uint32_t)d;
    left--;
    uint32_t first = low << (4 * left), last = ((low + 1) << (4 * left)) - 1;
    first = RVI_MAX(first, 0xDC00u);
    last = RVI_MIN(last, 0xDFFFu);
    if (first > last) return RVI_LEX_DEAD;
    uint32_t base = 0x10000 + (top << 10) - 0xDC00;
    if (!left) return complete(w, base + low);
    return wait(w, pend(LOW, left, top << 12 | low), base + first, base + last);
}

uint32_t rvi_lex_step(rvi_lexer *l, uint32_t state, uint8_t b, uint32_t *cp)
{
    walk w = {l, l->states[state], cp};
    uint32_t left = w.s.pending >> 4 & 15, value = w.s.pending >> 8;
    uint32_t first = 0x10000 + (value << 10);
    if (cp) *cp = UINT32_MAX;
    switch ((way)(w.s.pending & 15)) {
    case NOTHING: return begin(&w, b);
    case BACKSLASH: return escaped(&w, b);
    case HEX: return hex_digit(&w, left, value, hex(b));
    case HIGH:
        return b == '\\' ? wait(&w, pend(HIGH_U, 0, value), first, first + 0x3FF) : RVI_LEX_DEAD;
    case HIGH_U:
        return b == 'u' ? wait(&w, pend(LOW, 4, value << 12), first, first + 0x3FF) : RVI_LEX_DEAD;
    case LOW: return low_digit(&w, left, value, hex(b));
    case UTF8_2:
    case UTF8_3:
    case UTF8_4:
        if ((b & 0xC0) != 0x80) return RVI_LEX_DEAD;
        value = value << 6 | (b & 0x3Fu);
        if (left == 1) {
            bool overlong = ((w.s.pending & 15) == UTF8_3 && value < 0x800) ||
                            ((w.s.pending & 15) == UTF8_4 && value < 0x10000);
            return overlong || value > RVI_RX_LAST ? RVI_LEX_DEAD : complete(&w, value);
        }
        return wait_utf8(&w, (way)(w.s.pending & 15), left - 1, value);
    }
    return RVI_LEX_DEAD;
}

/* The steps of a state that many bytes are tried on. NULL: no memory. */
static uint32_t *row_of(rvi_lexer *l, uint32_t state)
{
    if (!l->states[state].row) {
        if (l->n_rows == l->cap_rows) {
            uint32_t cap = l->cap_rows ? l->cap_rows * 2 : 16;
            uint32_t *rows =
                cap > MAX_ROWS ? NULL : rvi_realloc_array(l->rows, cap, 256 * sizeof *rows);
            if (!rows) return NULL;
            l->rows = rows;
            l->cap_rows = cap;
        }
        memset(l->rows + (size_t)l->n_rows * 256, 0xFF, 256 * sizeof *l->rows);
        l->states[state].row = ++l->n_rows;
    }
    return l->rows + (size_t)(l->states[state].row - 1) * 256;
}

uint32_t rvi_lex_fill(rvi_lexer *l, uint32_t state, uint8_t b)
{
    uint32_t next = rvi_lex_step(l, state, b, NULL), *row = row_of(l, state);
    if (row && !l->rxs->status) row[b] = next;
    return next;
}
