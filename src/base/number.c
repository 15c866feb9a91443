#include "base/number.h"

#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* ---- the exact decimal expansion ---- */

enum { MAX_DIGITS = 800, MAX_LIMBS = 96, LIMB = 1000000000 };

/* 0.d[0]d[1]... * 10^point; n 0: zero. The smallest double has 751 digits, a point between two
 * neighbours one more. */
typedef struct decimal {
    char d[MAX_DIGITS];
    int n, point;
} decimal;

static int multiply(uint32_t *limbs, int n, uint32_t by)
{
    uint64_t carry = 0;
    for (int i = 0; i < n; i++) {
        carry += (uint64_t)limbs[i] * by;
        limbs[i] = (uint32_t)(carry % LIMB);
        carry /= LIMB;
    }
    for (; carry; carry /= LIMB) limbs[n++] = (uint32_t)(carry % LIMB);
    return n;
}

/* m * 2^e: m * 5^-e with the point moved by -e digits where e is negative. */
static void expand(uint64_t m, int e, decimal *out)
{
    uint32_t limbs[MAX_LIMBS];
    int n = 0;
    for (; m && !(m & 1) && e < 0; e++) m >>= 1;
    const int fraction = e < 0 ? -e : 0;
    for (; m; m /= LIMB) limbs[n++] = (uint32_t)(m % LIMB);
    for (int left = e; left > 0; left -= 29)
        n = multiply(limbs, n, UINT32_C(1) << (left < 29 ? left : 29));
    for (int left = fraction; left > 0; left -= 13) {
        uint32_t power = 1;
        for (int i = 0; i < 13 && i < left; i++) power *= 5;
        n = multiply(limbs, n, power);
    }
    out->n = 0;
    for (int i = n - 1; i >= 0; i--)
        for (uint32_t unit = LIMB / 10; unit; unit /= 10) {
            char digit = (char)('0' + limbs[i] / unit % 10);
            if (out->n || digit != '0') out->d[out->n++] = digit;
        }
    out->point = out->n - fraction;
    while (out->n && out->d[out->n - 1] == '0') out->n--;
}

/* v >= 0 and finite as m * 2^e. */
static uint64_t split(double v, int *e)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    int exponent = (int)(bits >> 52);
    uint64_t m = bits & (((uint64_t)1 << 52) - 1);
    *e = (exponent ? exponent : 1) - 1075;
    return exponent ? m | (uint64_t)1 << 52 : m;
}

/* Keeps the first `keep` digits, rounded half to even. */
static void round_to(decimal *x, int keep)
{
    if (keep >= x->n) return;
    if (keep < 0) {
        x->n = 0;
        return;
    }
    bool tie = x->d[keep] == '5' && x->n == keep + 1; /* the last digit is never 0 */
    bool up = tie ? keep && (x->d[keep - 1] - '0') % 2 : x->d[keep] >= '5';
    x->n = keep;
    while (up && x->n && x->d[x->n - 1] == '9') x->n--;
    if (up && x->n) {
        x->d[x->n - 1]++;
    } else if (up) {
        x->d[x->n++] = '1';
        x->point++;
    }
    while (x->n && x->d[x->n - 1] == '0') x->n--;
}

/* ---- text ---- */

typedef struct sink {
    char *out;
    size_t cap, len; /* len also counts what did not fit */
} sink;

static void put(sink *s, char c)
{
    if (s->len + 1 < s->cap) s->out[s->len] = c;
    s->len++;
}

static void put_many(sink *s, char c, int64_t n)
{
    for (; n > 0; n--) put(s, c);
}

static void put_text(sink *s, const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) put(s, text[i]);
}

typedef struct spec {
    bool left, plus, blank, alternate, zero;
    int width, precision; /* precision -1: none */
    char length;          /* H (hh) h l L (ll) z j t or 0 */
    char type;
} spec;

static char digit_at(const decimal *x, int i)
{
    return i >= 0 && i < x->n ? x->d[i] : '0';
}

static void put_exponential(sink *s, const spec *f, const decimal *x, int decimals)
{
    int exponent = x->n ? x->point - 1 : 0, size = exponent < 0 ? -exponent : exponent;
    put(s, digit_at(x, 0));
    if (decimals || f->alternate) put(s, '.');
    for (int i = 1; i <= decimals; i++) put(s, digit_at(x, i));
    put(s, f->type == 'e' || f->type == 'g' ? 'e' : 'E');
    put(s, exponent < 0 ? '-' : '+');
    if (size >= 100) put(s, (char)('0' + size / 100));
    put(s, (char)('0' + size / 10 % 10));
    put(s, (char)('0' + size % 10));
}

static void put_fixed(sink *s, const spec *f, const decimal *x, int decimals)
{
    int point = x->n ? x->point : 0;
    if (point <= 0) put(s, '0');
    for (int i = 0; i < point; i++) put(s, digit_at(x, i));
    if (decimals || f->alternate) put(s, '.');
    for (int i = 0; i < decimals; i++) put(s, digit_at(x, point + i));
}

/* A finite number without its sign. */
static void put_digits(sink *s, const spec *f, const decimal *exact)
{
    decimal x = *exact;
    int precision = f->precision < 0 ? 6 : f->precision;
    switch (f->type | 0x20) {
    case 'e':
        round_to(&x, precision < MAX_DIGITS ? precision + 1 : MAX_DIGITS);
        put_exponential(s, f, &x, precision);
        return;
    case 'f':
        round_to(&x, precision < MAX_DIGITS * 2 ? x.point + precision : MAX_DIGITS);
        put_fixed(s, f, &x, precision);
        return;
    default:
        if (!precision) precision = 1;
        round_to(&x, precision);
        int exponent = x.n ? x.point - 1 : 0, kept = f->alternate ? precision : x.n ? x.n : 1;
        if (exponent < -4 || exponent >= precision)
            put_exponential(s, f, &x, kept - 1);
        else
            put_fixed(s, f, &x, kept - 1 > exponent ? kept - 1 - exponent : 0);
    }
}

static const char *sign_of(const spec *f, bool negative)
{
    return negative ? "-" : f->plus ? "+" : f->blank ? " " : "";
}

static void put_double(sink *s, const spec *f, double v)
{
    const char *sign = sign_of(f, signbit(v) != 0), *word = NULL;
    bool capital = f->type < 'a';
    decimal x = {.n = 0};
    sink measure = {0};
    if (isnan(v)) word = capital ? "NAN" : "nan";
    if (isinf(v)) word = capital ? "INF" : "inf";
    if (!word) {
        int e;
        uint64_t m = split(fabs(v), &e);
        expand(m, e, &x);
        put_digits(&measure, f, &x);
    }
    int64_t gap = f->width - (int64_t)strlen(sign) - (int64_t)(word ? 3 : measure.len);
    bool zeros = f->zero && !f->left && !word;
    if (!f->left && !zeros) put_many(s, ' ', gap);
    put_text(s, sign, strlen(sign));
    if (zeros) put_many(s, '0', gap);
    if (word)
        put_text(s, word, 3);
    else
        put_digits(s, f, &x);
    if (f->left) put_many(s, ' ', gap);
}

static void put_integer(sink *s, const spec *f, uint64_t v, bool negative)
{
    static const char lower[] = "0123456789abcdef", upper[] = "0123456789ABCDEF";
    unsigned base = f->type == 'o'                                       ? 8
                    : f->type == 'x' || f->type == 'X' || f->type == 'p' ? 16
                                                                         : 10;
    char back[32], prefix[4] = "";
    int n = 0;
    if (base == 10) memcpy(prefix, sign_of(f, negative), strlen(sign_of(f, negative)));
    if (base == 16 && (f->type == 'p' || (f->alternate && v)))
        memcpy(prefix, f->type == 'X' ? "0X" : "0x", 2);
    for (; v; v /= base) back[n++] = (f->type == 'X' ? upper : lower)[v % base];
    int64_t digits = n > (f->precision < 0 ? 1 : f->precision) ? n
                     : f->precision < 0                        ? 1
                                                               : f->precision;
    if (base == 8 && f->alternate && digits == n) digits++;
    int64_t gap = f->width - (int64_t)strlen(prefix) - digits;
    bool zeros = f->zero && !f->left && f->precision < 0;
    if (!f->left && !zeros) put_many(s, ' ', gap);
    put_text(s, prefix, strlen(prefix));
    if (zeros) put_many(s, '0', gap);
    put_many(s, '0', digits - n);
    while (n) put(s, back[--n]);
    if (f->left) put_many(s, ' ', gap);
}

static void put_string(sink *s, const spec *f, const char *text)
{
    size_t len = 0;
    if (!text) text = "(null)";
    while ((f->precision < 0 || len < (size_t)f->precision) && text[len]) len++;
    if (!f->left) put_many(s, ' ', f->width - (int64_t)len);
    put_text(s, text, len);
    if (f->left) put_many(s, ' ', f->width - (int64_t)len);
}

/* ---- formats ---- */

static int read_int(const char **p)
{
    int n = 0;
    for (; **p >= '0' && **p <= '9'; ++*p)
        if (n < 100000000) n = n * 10 + (**p - '0');
    return n;
}

static void read_flags(const char **p, spec *f)
{
    for (;; ++*p) switch (**p) {
        case '-': f->left = true; break;
        case '+': f->plus = true; break;
        case ' ': f->blank = true; break;
        case '#': f->alternate = true; break;
        case '0': f->zero = true; break;
        default: return;
        }
}

static void read_length(const char **p, spec *f)
{
    if (!**p || !strchr("hlzjt", **p)) return;
    f->length = *(*p)++;
    if (**p == f->length && (f->length == 'h' || f->length == 'l'))
        f->length = *(*p)++ == 'h' ? 'H' : 'L';
}

/* A va_list in a struct, so that functions can take from the caller's. */
typedef struct arguments {
    va_list list;
} arguments;

static int64_t next_signed(arguments *a, char length)
{
    switch (length) {
    case 'H': return (signed char)va_arg(a->list, int);
    case 'h': return (short)va_arg(a->list, int);
    case 'l': return va_arg(a->list, long);
    case 'L': return va_arg(a->list, long long);
    case 'j': return va_arg(a->list, intmax_t);
    case 'z':
    case 't': return va_arg(a->list, ptrdiff_t);
    default: return va_arg(a->list, int);
    }
}

static uint64_t next_unsigned(arguments *a, char length)
{
    switch (length) {
    case 'H': return (unsigned char)va_arg(a->list, unsigned);
    case 'h': return (unsigned short)va_arg(a->list, unsigned);
    case 'l': return va_arg(a->list, unsigned long);
    case 'L': return va_arg(a->list, unsigned long long);
    case 'j': return va_arg(a->list, uintmax_t);
    case 'z':
    case 't': return va_arg(a->list, size_t);
    default: return va_arg(a->list, unsigned);
    }
}

static bool put_next(sink *s, const spec *f, arguments *a)
{
    int64_t i;
    char c;
    switch (f->type) {
    case 'd':
    case 'i':
        i = next_signed(a, f->length);
        put_integer(s, f, i < 0 ? 0 - (uint64_t)i : (uint64_t)i, i < 0);
        return true;
    case 'u':
    case 'x':
    case 'X':
    case 'o': {
        spec without_sign = *f;
        without_sign.plus = without_sign.blank = false;
        put_integer(s, &without_sign, next_unsigned(a, f->length), false);
        return true;
    }
    case 'p': put_integer(s, f, (uint64_t)(uintptr_t)va_arg(a->list, void *), false); return true;
    case 'c':
        c = (char)va_arg(a->list, int);
        if (!f->left) put_many(s, ' ', f->width - 1);
        put(s, c);
        if (f->left) put_many(s, ' ', f->width - 1);
        return true;
    case 's': put_string(s, f, va_arg(a->list, const char *)); return true;
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G': put_double(s, f, va_arg(a->list, double)); return true;
    default: return false;
    }
}

int rvi_vsnprintf(char *out, size_t cap, const char *fmt, va_list args)
{
    sink s = {.out = out, .cap = cap};
    arguments a;
    bool ok = true;
    va_copy(a.list, args);
    for (const char *p = fmt; ok && *p; p++) {
        if (*p != '%') {
            put(&s, *p);
            continue;
        }
        if (*++p == '%') {
            put(&s, '%');
            continue;
        }
        spec f = {.precision = -1};
        read_flags(&p, &f);
        if (*p == '*') {
            f.width = va_arg(a.list, int);
            f.left |= f.width < 0;
            f.width = f.width < 0 ? -f.width : f.width;
            p++;
        } else {
            f.width = read_int(&p);
        }
        if (*p == '.') {
            p++;
            if (*p == '*') {
                f.precision = va_arg(a.list, int);
                if (f.precision < 0) f.precision = -1;
                p++;
            } else {
                f.precision = read_int(&p);
            }
        }
        read_length(&p, &f);
        f.type = *p;
        ok = put_next(&s, &f, &a);
    }
    va_end(a.list);
    if (cap) out[s.len < cap ? s.len : cap - 1] = 0;
    return ok && s.len <= INT_MAX ? (int)s.len : -1;
}

int rvi_snprintf(char *out, size_t cap, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int len = rvi_vsnprintf(out, cap, fmt, args);
    va_end(args);
    return len;
}

/* ---- reading ---- */

/* <0, 0, >0: x against m * 2^e */
static int compare(const decimal *x, uint64_t m, int e)
{
    decimal y;
    expand(m, e, &y);
    if (!x->n || !y.n) return x->n - y.n;
    if (x->point != y.point) return x->point < y.point ? -1 : 1;
    int n = x->n < y.n ? x->n : y.n, order = memcmp(x->d, y.d, (size_t)n);
    return order ? order : x->n - y.n;
}

/* x against the middle between the double with these bits and the next one */
static int against_middle(const decimal *x, uint64_t bits)
{
    double v;
    int e;
    memcpy(&v, &bits, sizeof v);
    uint64_t m = split(v, &e);
    return compare(x, 2 * m + 1, e - 1);
}

/* Within some units of the last place: 19 digits and rounded powers of ten. */
static double estimate(const decimal *x)
{
    uint64_t head = 0;
    int n = x->n < 19 ? x->n : 19, exponent = x->point - n;
    for (int i = 0; i < n; i++) head = head * 10 + (uint64_t)(x->d[i] - '0');
    double v = (double)head;
    for (; exponent >= 22; exponent -= 22) v *= 1e22;
    for (; exponent <= -22; exponent += 22) v /= 1e22;
    for (; exponent > 0; exponent--) v *= 10;
    for (; exponent < 0; exponent++) v /= 10;
    return v;
}

/* Both numbers are doubles, so the one operation rounds once: to the nearest. */
static bool in_one_step(const decimal *x, double *out)
{
    static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                    1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                    1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    int exponent = x->point - x->n;
    uint64_t head = 0;
    if (x->n > DBL_DIG || exponent < -22 || exponent > 22) return false;
    for (int i = 0; i < x->n; i++) head = head * 10 + (uint64_t)(x->d[i] - '0');
    *out = exponent < 0 ? (double)head / powers[-exponent] : (double)head * powers[exponent];
    return true;
}

/* The nearest double, on a tie the one whose last bit is 0. */
static double nearest(const decimal *x)
{
    static const uint64_t infinity_bits = UINT64_C(0x7FF0000000000000);
    double v = 0;
    uint64_t bits;
    int order;
    if (!x->n || x->point < -330) return 0;
    if (x->point > 310) return HUGE_VAL;
    if (in_one_step(x, &v)) return v;
    v = estimate(x);
    memcpy(&bits, &v, sizeof bits);
    if (bits >= infinity_bits) bits = infinity_bits - 1;
    while (bits < infinity_bits &&
           ((order = against_middle(x, bits)) > 0 || (order == 0 && bits & 1)))
        bits++;
    while (bits && ((order = against_middle(x, bits - 1)) < 0 || (order == 0 && bits % 2))) bits--;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static bool skip_word(const char **p, const char *word)
{
    size_t n = 0;
    for (; word[n]; n++)
        if (((*p)[n] | 0x20) != word[n]) return false;
    *p += n;
    return true;
}

/* Digits with one point among them. More digits than fit are remembered as one that is not 0. */
static bool read_digits(const char **p, decimal *x)
{
    bool any = false, behind = false, more = false;
    for (;; ++*p) {
        char c = **p;
        if (c == '.' && !behind) {
            behind = true;
            continue;
        }
        if (c < '0' || c > '9') break;
        any = true;
        if (x->n || c != '0') {
            if (x->n < MAX_DIGITS - 1)
                x->d[x->n++] = c;
            else
                more |= c != '0';
            x->point += !behind;
        } else {
            x->point -= behind;
        }
    }
    if (more) x->d[x->n++] = '1';
    while (x->n && x->d[x->n - 1] == '0') x->n--;
    return any;
}

double rvi_number_parse(const char *text, const char **end)
{
    const char *p = text, *ignored;
    decimal x = {.n = 0};
    bool negative = *p == '-';
    double v;
    if (!end) end = &ignored;
    if (*p == '-' || *p == '+') p++;
    if (skip_word(&p, "inf")) {
        (void)skip_word(&p, "inity");
        v = HUGE_VAL;
    } else if (skip_word(&p, "nan")) {
        v = (double)NAN;
    } else {
        if (!read_digits(&p, &x)) {
            *end = text;
            return 0;
        }
        if (*p == 'e' || *p == 'E') {
            const char *q = p + 1;
            bool minus = *q == '-';
            if (*q == '-' || *q == '+') q++;
            if (*q >= '0' && *q <= '9') {
                int exponent = read_int(&q);
                x.point += minus ? -exponent : exponent;
                p = q;
            }
        }
        v = nearest(&x);
    }
    *end = p;
    return negative ? -v : v;
}
